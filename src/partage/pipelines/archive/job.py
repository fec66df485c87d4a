"""The archive job: a query in a group whose batches are added to an archive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from partage.pipelines.archive.directory import ArchiveDirectory
from partage.pipelines.archive.manifest import ArchiveReport
from partage.pipelines.archive.query import ArchivingQuery
from partage.pipelines.queries import topic_ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS: Final = "key,value,topic,partition,offset,timestamp,timestampType,headers"


class ArchiveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the archive job.

    Each batch writes separate files, so a longer ``every_s`` (seconds between batches) makes fewer
    files. With ``is_once``, the job ends when it has archived the records that exist at its start.
    ``source`` has further options for the streaming source.
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
    """Archive topics until ``is_over``, or with ``is_once`` until the existing records are
    archived.

    The session must use UTC (`partage.pipelines.session` sets this).

    Args:
        spark: the session.
        options: topics, group and output.
        is_over: polled; True stops the job.
        progress: as in `ArchivingQuery.run`.

    Returns:
        A report of the whole archive, including earlier runs.

    Raises:
        ArchiveDirectoryError, ManifestError: as `ArchiveDirectory`.
        QueryFailedError: if the query failed. Batches before the failure are archived.
    """
    directory = ArchiveDirectory(options.output)
    with ArchivingQuery(directory) as query:

        def take(frame: DataFrame, name: str, offset: Mapping[str, Any]) -> None:
            query.batches.archive_batch(name, lambda place: _stage(frame, place), topic_ids(offset))

        query.run(
            _stream(spark, options),
            take,
            f"archive to {options.output.name}",
            every_s=options.every_s,
            is_once=options.is_once,
            is_over=is_over,
            progress=progress,
        )
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
