"""Sessions of the pipelines on Spark, without Spark."""

from __future__ import annotations

import pytest

from partage.pipelines import session


def test_session_without_spark_names_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    with (
        pytest.raises(session.SparkUnavailableError) as failure,
        session.spark_session("name", "local[1]", {}),
    ):
        pass
    assert str(failure.value) == "not installed: pyspark, pyarrow; pip install 'partage[spark]'"
