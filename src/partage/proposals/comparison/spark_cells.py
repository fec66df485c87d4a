"""Runs the cells of a grid on Spark, and returns their results as a DataFrame."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

import msgspec

from partage.proposals.comparison.cell import CellResult, Workload
from partage.proposals.comparison.cells import longest_first, run_measured
from partage.proposals.comparison.result_table import results_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run_cells_on_spark(spark: SparkSession, cells: Iterable[Workload]) -> Generator[CellResult]:
    """Run each cell as one task of Spark, and yield each result when it is finished.

    The figures are those of `run_cells`, except for CPU times. The executors need this package.

    Args:
        spark: The session.
        cells: The cells.

    Raises:
        Exception: An error of Spark, such as an executor that was lost.
    """
    context = spark.sparkContext

    def run(cell: Workload) -> bytes:
        (encoded,) = context.parallelize([msgspec.json.encode(cell)], 1).map(_run_encoded).collect()
        return encoded

    # One job for each cell: Spark returns the results of a job only when the job is complete. One
    # more job than cores, so that no core waits.
    pool = ThreadPoolExecutor(context.defaultParallelism + 1)
    try:
        for future in as_completed([pool.submit(run, cell) for cell in longest_first(cells)]):
            yield msgspec.json.decode(future.result(), type=CellResult)
    finally:
        pool.shutdown(cancel_futures=True)


def _run_encoded(cell: bytes) -> bytes:
    return msgspec.json.encode(run_measured(msgspec.json.decode(cell, type=Workload)))


def compare_on_spark(spark: SparkSession, cells: Sequence[Workload]) -> DataFrame:
    """Run cells on Spark and return their results: one row for each cell and phase.

    The columns are those of `partage.proposals.comparison.result_table`, and the rows have the
    order of the cells.

    Args:
        spark: The session.
        cells: The cells, such as those of `partage.proposals.comparison.grid.expand_grid`.
    """
    results = {each.workload: each for each in run_cells_on_spark(spark, cells)}
    return spark.createDataFrame(results_table(results[cell] for cell in cells))
