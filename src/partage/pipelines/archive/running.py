"""The query that archives: a member of a group, whose batches go into an archive's directory."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from partage.pipelines.archive.batches import Batches
from partage.pipelines.archive.directory import ArchiveDirectory, Staging
from partage.pipelines.archive.manifest import ArchiveReport
from partage.pipelines.queries import QueryFailed, kept_offset, ran_until, topic_ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS: Final = "key,value,topic,partition,offset,timestamp,timestampType,headers"


class ArchiveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is archived and where to; ``source`` are more options of the streaming source.

    ``every_s`` is the time between batches, each of which makes files of its own. ``is_once`` ends
    the query when it has archived what is there when it starts.
    """

    servers: str
    topics: tuple[str, ...]
    group: str
    output: Path
    every_s: float = 10.0
    is_once: bool = False
    source: Mapping[str, str] = {}


def archive(
    spark: SparkSession,
    options: ArchiveOptions,
    *,
    is_over: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], None] = lambda rows, refused: None,
) -> ArchiveReport:
    """Archive until everything is, or until ``is_over``; the whole archive in figures.

    ``progress`` is told the rows that this run has archived, and those that were there already.
    Session settings: times in UTC (`partage.pipelines.session` has them).

    Raises:
        NotAnArchive, BadManifest: as `ArchiveDirectory`.
        QueryFailed: Spark's query failed; what was archived until then is.
    """
    directory = ArchiveDirectory(options.output)
    directory.clear()
    staging = Staging(options.output)
    try:
        by = f"{socket.gethostname()}:{os.getpid()}"
        batches = Batches(directory, staging, by, lambda: time.time_ns() // 1_000_000)

        checkpoint = staging.path / "checkpoint"

        def take(frame: DataFrame, number: int) -> None:
            ids = topic_ids(kept_offset(checkpoint, number))
            batches.bring(str(number), lambda place: _stage(frame, place), ids)

        writer = _stream(spark, options).writeStream.foreachBatch(take)
        writer = writer.queryName(f"archive to {options.output.name}")
        # The group's offsets and the manifest say where to go on, whoever goes on: a checkpoint
        # that outlives the query is not needed.
        writer = writer.option("checkpointLocation", str(checkpoint))
        if options.is_once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{options.every_s:g} seconds")
        ran_until(writer.start(), is_over, lambda: progress(batches.rows, batches.refused))
    finally:
        staging.end(directory)
    directory.refresh()
    return directory.manifest.report(str(options.output))


def _stream(spark: SparkSession, options: ArchiveOptions) -> DataFrame:
    reader = spark.readStream.format("partage").options(
        **{
            "kafka.bootstrap.servers": options.servers,
            "kafka.group.id": options.group,
            "subscribe": ",".join(options.topics),
            "startingOffsets": "earliest",
            "columns": COLUMNS,
            **options.source,
        }
    )
    return reader.load()


def _stage(frame: DataFrame, place: Path) -> None:
    from pyspark.sql import functions as f

    dated = frame.withColumn("date", f.date_format("timestamp", "yyyy-MM-dd"))
    dated.write.partitionBy("topic", "date").option("compression", "snappy").parquet(str(place))


__all__ = ["ArchiveOptions", "QueryFailed", "archive"]
