"""Simulated worlds on Spark."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from partage.console.app import app
from partage.lab.spark_swarm import run_seeds_on_spark
from partage.lab.swarm import run_seed


@pytest.mark.spark
def test_seeds_on_spark_equal_local_results(spark: SparkSession) -> None:
    seeds = range(20, 33)  # more than one task
    found = list(run_seeds_on_spark(seeds))
    assert found == [run_seed(seed) for seed in seeds]


@pytest.mark.spark
def test_lab_run_on_spark_equals_local_run(spark: SparkSession) -> None:
    asked = ["lab", "run", "--seed-from", "40", "--seeds", "13", "--json"]
    runs = [CliRunner().invoke(app, [*asked, *how]) for how in (["--spark"], ["--jobs", "1"])]
    assert [run.exit_code for run in runs] == [0, 0]
    spread, local = (json.loads(run.stdout) for run in runs)
    assert spread["worlds"] == 13
    assert spread == local


@pytest.mark.spark
def test_grid_on_spark_equals_local_grid(spark: SparkSession) -> None:
    asked = ["lab", "run", "--seeds", "3", "--grid", "members=1,2", "--set", "steps=0", "--json"]
    runs = [CliRunner().invoke(app, [*asked, *how]) for how in (["--spark"], ["--jobs", "1"])]
    spread, local = (json.loads(run.stdout) for run in runs)
    assert len(spread["combinations"]) == 2
    assert spread == local
