"""A topic archived to Parquet exactly once: ``partage pipeline archive`` and Spark's file sink.

The peer is a stream from the connector into Spark's file sink, which logs its files and offsets.
Both read the existing records, with headers, into directories by topic and day, and end.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from bench.spark_batch import OURS, TOPIC, Took, cpu_seconds
from partage.pipelines.archive.job import ArchiveOptions, archive


def race(
    spark: SparkSession, servers: str, sources: Sequence[str], total: int, rounds: int
) -> Mapping[str, Took]:
    """Run the archives in turn, in ``rounds`` rounds after one warm-up round.

    Returns:
        The best round of each source.
    """
    best: dict[str, Took] = {}
    for turn in range(rounds + 1):
        for source in sources:
            with tempfile.TemporaryDirectory(prefix="partage-bench-") as scratch:
                output = Path(scratch, "archive")
                cpu_s, began_s = cpu_seconds(), time.perf_counter()
                if source == OURS:
                    _ours(spark, servers, output)
                else:
                    _sparks(spark, source, servers, output, Path(scratch, "checkpoint"))
                took = Took(time.perf_counter() - began_s, cpu_seconds() - cpu_s)
                assert spark.read.parquet(str(output)).count() == total
            if turn:
                best[source] = min(took, best.get(source, took))
    return best


def _ours(spark: SparkSession, servers: str, output: Path) -> None:
    group = f"archive-{uuid.uuid4().hex}"
    options = ArchiveOptions(
        servers=servers, topics=(TOPIC,), group=group, output=output, is_once=True
    )
    archive(spark, options)


def _sparks(spark: SparkSession, source: str, servers: str, output: Path, checkpoint: Path) -> None:
    reader = spark.readStream.format(source).option("kafka.bootstrap.servers", servers)
    given = {"subscribe": TOPIC, "startingOffsets": "earliest", "includeHeaders": "true"}
    rows = reader.options(**given).load()
    dated = rows.withColumn("date", f.date_format("timestamp", "yyyy-MM-dd"))
    writer = dated.writeStream.format("parquet").partitionBy("topic", "date")
    writer = writer.option("path", str(output)).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
