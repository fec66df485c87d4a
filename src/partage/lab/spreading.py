"""Spreads seeds over Spark: each task lives through some worlds and sends back their verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from pyspark.sql import SparkSession

from partage.lab.running import Verdict

_WORLDS_A_TASK = 50


def verdicts_on_spark(seeds: Sequence[int]) -> Iterator[Verdict]:
    """The verdicts of many seeds, as Spark's tasks finish them.

    Spark is taken as it is found: an active session, or a new one on the master that Spark's own
    configuration names, else on this machine. The executors need this package.
    """
    spark = SparkSession.builder.appName("partage lab").getOrCreate()
    tasks = max(1, len(seeds) // _WORLDS_A_TASK)
    encoded = (
        spark.sparkContext.parallelize(seeds, tasks)
        .map(_judged)
        .toLocalIterator(prefetchPartitions=True)
    )
    for found in encoded:
        yield msgspec.json.decode(found, type=Verdict)


def _judged(seed: int) -> bytes:
    from partage.lab.swarm import judge

    return msgspec.json.encode(judge(seed))
