"""Simulated worlds spread over Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from partage.lab.spreading import verdicts_on_spark
from partage.lab.swarm import judge


@pytest.mark.spark
def test_spark_gives_the_same_verdicts(spark: SparkSession) -> None:
    found = list(verdicts_on_spark(range(20, 24)))
    assert found == [judge(seed) for seed in range(20, 24)]
