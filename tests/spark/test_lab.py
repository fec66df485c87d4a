"""Simulated worlds spread over Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from partage.lab.spreading import verdicts_on_spark
from partage.lab.swarm import judge


@pytest.mark.spark
def test_spark_gives_the_same_verdicts(spark: SparkSession) -> None:
    seeds = range(20, 33)  # more than one task's
    found = list(verdicts_on_spark(seeds))
    assert found == [judge(seed) for seed in seeds]
