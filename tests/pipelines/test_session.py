"""Sessions of the pipelines on Spark, without Spark."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from partage import spark
from partage.pipelines import session


def test_session_without_spark_names_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    with (
        pytest.raises(session.SparkUnavailableError) as failure,
        session.spark_session("name", "local[1]", {}),
    ):
        pass
    assert str(failure.value) == "not installed: pyspark, pyarrow; pip install 'partage[spark]'"


@pytest.mark.parametrize("master", ["nosuch", "", "local[x]", "local[]", "local[2", "spark://"])
def test_invalid_master_is_refused_before_java_starts(
    monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    monkeypatch.setattr(spark, "prepare_java", pytest.fail)
    with (
        pytest.raises(session.SparkUnavailableError, match=r"^invalid Spark master '"),
        session.spark_session("x", master, {}),
    ):
        pass


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[2]", "local[*]", "local[2,3]", "local[*, 3]", "local-cluster[2, 1, 512]"),
        *("spark://a:7077,b:7077", "yarn", "k8s://https://host:443"),
    ],
)
def test_masters_of_spark_are_accepted(master: str) -> None:
    assert session._MASTER.fullmatch(master)


def test_error_of_java_has_one_line() -> None:
    thrown = SimpleNamespace(getMessage=lambda: "\nCannot call methods on it.\nStack:\n at x\n")
    error = Exception("An error occurred while calling x\n: java.lang.Error\n")
    error.java_exception = thrown  # type: ignore[attr-defined]  # as Py4JJavaError
    assert session._start_failure(error) == "Cannot call methods on it."
    assert session._start_failure(ValueError("a\nb")) == "a"
