"""Spreads seeds over Spark: each task lives through some worlds and sends back their verdicts."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
from pyspark.sql import SparkSession

from partage.lab.running import Verdict

_WORLDS_A_TASK = 10


def verdicts_on_spark(seeds: Sequence[int]) -> Generator[Verdict]:
    """The verdicts of many seeds, in their order.

    Spark is taken as it is found: an active session, or a new one on the master that Spark's own
    configuration names, else on this machine. The executors need this package.
    """
    spark = SparkSession.builder.appName("partage lab").getOrCreate()
    context = spark.sparkContext

    def judged(some: Sequence[int]) -> list[bytes]:
        return context.parallelize(some, 1).map(_judged).collect()

    # A job a task, and one more of them than there are cores: Spark gives the results of a job all
    # at its end, or (toLocalIterator) runs no more than two tasks of it at a time.
    pool = ThreadPoolExecutor(context.defaultParallelism + 1)
    try:
        parts = [seeds[at : at + _WORLDS_A_TASK] for at in range(0, len(seeds), _WORLDS_A_TASK)]
        for found in pool.map(judged, parts):
            for verdict in found:
                yield msgspec.json.decode(verdict, type=Verdict)
    finally:
        pool.shutdown(cancel_futures=True)


def _judged(seed: int) -> bytes:
    from partage.lab.swarm import judge

    return msgspec.json.encode(judge(seed))
