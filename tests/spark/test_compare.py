"""Comparisons of designs on Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from partage.console.app import app
from partage.proposals.comparison.cell import Workload, run_cell
from partage.proposals.comparison.result_table import COLUMNS, results_table
from partage.proposals.comparison.spark_cells import compare_on_spark

from .standalone import Standalone

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_figures_on_spark_equal_local_figures(spark: SparkSession) -> None:
    cells = [
        Workload(design=design, members=4, phases=("join", "crash"))
        for design in ("multi-assignor", "broker-side")
    ]
    frame = compare_on_spark(spark, cells)
    assert frame.columns == COLUMNS.names
    found = frame.drop("coordinator_cpu_ms", "bytes_by_message").toArrow().to_pylist()
    local = results_table(map(run_cell, cells)).drop_columns(
        ["coordinator_cpu_ms", "bytes_by_message"]
    )
    assert found == local.to_pylist()
    assert frame.filter("phase = 'join'").count() == 2
    assert frame.first()["coordinator_cpu_ms"] > 0


def test_compare_on_spark_continues_and_equals_local_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    arguments = ["lab", "compare", "--design", "single-assignor", "--grid", "members=3,4", "--json"]
    output = ["--output", str(tmp_path)]
    runs = [
        CliRunner().invoke(app, [*arguments, *further])
        for further in (
            ["--grid", "seed=1", "--spark", *output],
            ["--spark", *output],
            ["--jobs", "1"],
        )
    ]
    assert [run.exit_code for run in runs] == [0, 0, 0], runs[0].exception
    first, again, local = (json.loads(run.stdout) for run in runs)
    assert again["cells"] == first["cells"]  # those of the first run, with their CPU times
    assert _without_cpu(first)["cells"] == _without_cpu(local)["cells"]
    phases = sum(len(cell["phases"]) for cell in local["cells"])
    assert pq.read_table(tmp_path / "cells.parquet").num_rows == phases


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_cells_run_on_the_executors_of_a_cluster(tmp_path: Path) -> None:
    asked = ["lab", "compare", "--design", "single-assignor", "--grid", "seed=1,2,3,4", "--json"]
    asked += ["--grid", "members=3", "--phase", "join"]
    with Standalone(tmp_path / "cluster") as cluster:
        command = [str(Path(sys.executable).with_name("partage")), *asked, "--spark"]
        command += ["--master", cluster.url]
        spread = subprocess.run(command, capture_output=True, text=True, check=False)
        assert spread.returncode == 0, spread.stderr
        logs = list((tmp_path / "cluster").glob("worker*/app-*/*/stderr"))
        assert len({log.parts[-4] for log in logs}) == 2
        assert all("Finished task" in log.read_text() for log in logs)
    local = CliRunner().invoke(app, [*asked, "--jobs", "1"])
    assert (
        _without_cpu(json.loads(spread.stdout))["cells"]
        == (_without_cpu(json.loads(local.stdout))["cells"])
    )


def _without_cpu(report: dict[str, Any]) -> dict[str, Any]:
    for cell in report["cells"]:
        for phase in cell["phases"]:
            del phase["coordinator_cpu_ms"]
    return report
