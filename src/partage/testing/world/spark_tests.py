"""Run the tests of worlds on a Spark cluster: each task runs some seeds of one test.

A task starts pytest in a separate process of the executor, which must have this package and the
test files at the same path. The reports are shown as those of local tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

_SEEDS_PER_TASK: Final = 10
_OUTPUT_MAX: Final = 4_000
_REPORTS: Final = "PARTAGE_WORLD_REPORTS"


@dataclass(frozen=True)
class SeedRange:
    """Consecutive seeds of one test.

    Attributes:
        test_id: the id of the test without its seed.
        first: the first seed.
        count: the number of seeds.
    """

    test_id: str
    first: int
    count: int


def split_seeds(seeds_by_test: Iterable[tuple[str, int]]) -> list[SeedRange]:
    """Return ranges of consecutive seeds of one test each, with at most ten seeds.

    Args:
        seeds_by_test: tests with their seeds, in order.
    """
    ranges: list[SeedRange] = []
    for test_id, seed in seeds_by_test:
        last = ranges[-1] if ranges else None
        is_next = last is not None and (test_id, seed) == (last.test_id, last.first + last.count)
        if last is not None and is_next and last.count < _SEEDS_PER_TASK:
            ranges[-1] = SeedRange(test_id, last.first, last.count + 1)
        else:
            ranges.append(SeedRange(test_id, seed, 1))
    return ranges


def run_on_spark(ranges: Sequence[SeedRange], root: Path) -> Generator[dict[str, Any]]:
    """Run tests on Spark and yield their serialized reports, in the order of the ranges.

    It uses the active Spark session, or creates one with the master of Spark's configuration. The
    interpreter of the executors is that of the driver unless ``PYSPARK_PYTHON`` is set.

    Args:
        ranges: the tests with their seeds.
        root: the root directory of the tests, on the driver and the executors.

    Raises:
        pytest.UsageError: PySpark is missing, or Spark cannot be started.
        RuntimeError: a task could not run its tests; the message has the output of pytest.
    """
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise pytest.UsageError(
            f"--spark needs PySpark: pip install 'partage[spark]' ({error})"
        ) from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        session = SparkSession.builder.appName("pytest --worlds").getOrCreate()
    except PySparkException as error:
        raise pytest.UsageError(f"Spark could not be started: is Java installed? {error}") from None
    context = session.sparkContext

    def run(some: SeedRange) -> list[dict[str, Any]]:
        found = context.parallelize([some], 1).map(lambda each: run_seeds(each, str(root)))
        (reports,) = found.collect()
        return [json.loads(report) for report in reports]

    # One job for each task, because Spark returns the results of a job only when it is complete.
    pool = ThreadPoolExecutor(context.defaultParallelism + 1)
    try:
        for reports in pool.map(run, ranges):
            yield from reports
    finally:
        pool.shutdown(cancel_futures=True)
        session.stop()


def run_seeds(some: SeedRange, root: str) -> list[str]:
    """Run a test with some seeds in a separate process, and return its reports as JSON.

    Raises:
        RuntimeError: pytest ran no test.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "reports.jsonl")
        command = [
            *(sys.executable, "-m", "pytest", "-q", some.test_id),
            *("-p", "no:cacheprovider", "-p", "no:xdist", "-p", __name__),
            *(f"--rootdir={root}", f"--basetemp={Path(directory, 'worlds')}"),
            *(f"--world-seed={some.first}", f"--worlds={some.count}"),
        ]
        done = subprocess.run(
            command,
            cwd=root,
            env={**os.environ, _REPORTS: str(path)},
            capture_output=True,
            text=True,
        )
        if not path.exists():
            output = (done.stdout + done.stderr)[-_OUTPUT_MAX:]
            raise RuntimeError(
                f"pytest ran no test of {some.test_id} in {root}; the executors need the test "
                f"files at this path:\n{output}"
            )
        return path.read_text().splitlines()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Append a report to the file of the task; this module is a plugin of its pytest."""
    if path := os.environ.get(_REPORTS):
        with Path(path).open("a") as file:
            file.write(json.dumps(report._to_json()) + "\n")
