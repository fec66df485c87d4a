"""Run many seeds on Spark: each task runs some worlds and returns their verdicts."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from partage.lab.runner import Verdict

_WORLDS_PER_TASK = 10


def run_seeds_on_spark(
    seeds: Sequence[int], changes: dict[str, Any] | None = None
) -> Generator[Verdict]:
    """Run seeds on Spark and yield their verdicts in the order of the seeds.

    It uses the active Spark session, or creates one with the master of Spark's configuration
    (default: local). The executors need this package.

    Args:
        seeds: The seeds.
        changes: Options to set in all worlds, by name; None sets none.
    """
    spark = SparkSession.builder.appName("partage lab").getOrCreate()
    context = spark.sparkContext

    def judged(some: Sequence[int]) -> list[bytes]:
        run = partial(_run_seed_encoded, changes=changes)
        return context.parallelize(some, 1).map(run).collect()

    # One job for each task, and one more job than cores: Spark returns the results of a job only
    # when the job is complete, and ``toLocalIterator`` runs at most two tasks at a time.
    pool = ThreadPoolExecutor(context.defaultParallelism + 1)
    try:
        parts = [seeds[at : at + _WORLDS_PER_TASK] for at in range(0, len(seeds), _WORLDS_PER_TASK)]
        for found in pool.map(judged, parts):
            for verdict in found:
                yield msgspec.json.decode(verdict, type=Verdict)
    finally:
        pool.shutdown(cancel_futures=True)


def _run_seed_encoded(seed: int, changes: dict[str, Any] | None) -> bytes:
    from partage.lab.swarm import run_seed

    return msgspec.json.encode(run_seed(seed, changes=changes))
