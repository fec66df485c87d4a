"""The join job: a group member that owns the same partitions of both topics.

Spark's batches determine the partitions that the query owns, and the end offsets. The rows come
from batch reads of offset ranges. They are added to an archive, whose manifest knows which left
records are already written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from partage.pipelines.archive.batches import BatchArchiver
from partage.pipelines.archive.directory import ArchiveDirectory
from partage.pipelines.archive.manifest import ArchiveReport
from partage.pipelines.archive.query import ArchivingQuery
from partage.pipelines.join.dataframes import (
    complete_spans,
    join_rows,
    left_rows,
    right_rows,
    time_bounds_ms,
)
from partage.pipelines.join.window import JoinWindow, left_end_offsets, pending_spans
from partage.pipelines.queries import topic_ids
from partage.pipelines.sources import (
    SourceError,
    check_co_partitioned,
    partition_counts,
    topic_end_offsets,
)
from partage.spark import group_options
from partage.spark.kafka_options import PREFIX
from partage.spark.options import KNOWN_OPTIONS, STREAMING_ONLY_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STREAM_ONLY_NAMES: Final = frozenset(
    name.lower()
    for name in (
        *STREAMING_ONLY_OPTIONS,
        *(f"{PREFIX}{name}" for name in group_options.GROUP_OPTION_NAMES),
        *(name for name in KNOWN_OPTIONS if name.startswith(("starting", "ending"))),
    )
)


class JoinOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the join job; see `ArchiveOptions` for the common fields."""

    servers: str
    left: str
    right: str
    window: JoinWindow
    group: str
    output: Path
    every_s: float = 10.0
    is_once: bool = False
    source: Mapping[str, str] = {}

    @property
    def kind(self) -> str:
        """Kind of the entries: it distinguishes this join from other joins and from an archive."""
        within, late = (_seconds(ms) for ms in (self.window.within_ms, self.window.late_ms))
        return f"join of {self.left} and {self.right} within {within} s, late {late} s"


def _seconds(ms: int) -> str:
    """Return seconds as the command line takes them; different inputs give different texts."""
    return f"{ms // 1000}.{ms % 1000:03}".rstrip("0").rstrip(".")


def check_source(options: JoinOptions) -> None:
    """Check the source before Spark starts.

    Raises:
        SourceError: if the topics are not co-partitioned, or cannot be read, or if the source has
            another group protocol than the classic one.
    """
    for name, value in options.source.items():
        if name.lower() == f"{PREFIX}group.protocol" and value.strip().lower() != "classic":
            raise SourceError(
                f"{name}={value}: a join needs the classic protocol, because its assignor, "
                "co-partitioned, runs in the leader of the group; remove the option"
            )
    topics = (options.left, options.right)
    check_co_partitioned(partition_counts(options.servers, topics, options.source))


def join(
    spark: SparkSession,
    options: JoinOptions,
    *,
    is_over: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], None] = lambda rows, refused: None,
) -> ArchiveReport:
    """Join two topics until ``is_over``, or with ``is_once`` until the existing records are joined.

    With ``is_once``, left records do not wait for later right records at the end.

    Args:
        spark: the session.
        options: topics, window, group and output.
        is_over: polled; True stops the job.
        progress: as in `ArchivingQuery.run`.

    Returns:
        A report of the whole output, including earlier runs.

    Raises:
        SourceError: as `check_source`.
        ArchiveDirectoryError, ManifestError: as `ArchiveDirectory`.
        QueryFailedError: if the query failed. Batches before the failure are written.
    """
    check_source(options)
    directory = ArchiveDirectory(options.output, options.kind)
    with ArchivingQuery(directory) as query:
        joining = JoinWriter(spark, options, directory, query.batches)

        def take(frame: DataFrame, name: str, offset: Mapping[str, Any]) -> None:
            joining.topic_ids = topic_ids(offset)
            joining.write_complete(left_end_offsets(offset, options.left, options.right), name)

        query.run(
            _stream(spark, options),
            take,
            f"join to {options.output.name}",
            every_s=options.every_s,
            is_once=options.is_once,
            is_over=is_over,
            progress=progress,
        )
        if options.is_once and not is_over():
            joining.write_remaining()
            progress(query.batches.rows, query.batches.refused)
    directory.refresh()
    return directory.manifest.report(str(options.output))


class JoinWriter:
    """Writes complete rows. The manifest alone knows which rows are written."""

    def __init__(
        self,
        spark: SparkSession,
        options: JoinOptions,
        directory: ArchiveDirectory,
        batches: BatchArchiver,
    ) -> None:
        self._spark = spark
        self._options = options
        self._directory = directory
        self._batches = batches
        self.topic_ids: Mapping[str, str] = {}  # of the last batch
        self._source = {"kafka.bootstrap.servers": options.servers} | batch_source_options(
            options.source
        )

    def write_complete(self, ends: Mapping[int, int], name: str, *, is_final: bool = False) -> None:
        """Write the complete rows up to these end offsets; all rows if ``is_final``."""
        left, right, terms = self._options.left, self._options.right, self._options.window
        self._directory.refresh()
        spans = pending_spans(self._directory.manifest.end_offsets(left), ends)
        if not spans:
            return
        with ExitStack() as stack:
            ours = left_rows(self._spark, self._source, left, spans).persist()
            stack.callback(ours.unpersist)
            spans_ms = time_bounds_ms(ours)
            if not spans_ms:
                return
            reach_ms = {p: terms.right_start_ms(first_ms) for p, (first_ms, _) in spans_ms.items()}
            theirs = right_rows(self._spark, self._source, right, reach_ms).persist()
            stack.callback(theirs.unpersist)
            if not is_final:
                latest_ms = {p: last_ms for p, (_, last_ms) in time_bounds_ms(theirs).items()}
                spans = complete_spans(ours, spans, latest_ms, terms)
            if spans:
                rows = join_rows(ours, theirs, spans, terms)
                ids = {left: self.topic_ids.get(left, "")}
                self._batches.archive_batch(name, lambda place: _stage(rows, place), ids)

    def write_remaining(self) -> None:
        """Write all rows up to the current end offsets of all partitions.

        Other members may do the same; the manifest drops duplicates.
        """
        found = topic_end_offsets(self._options.servers, self._options.left, self._options.source)
        self.write_complete(found, "rest", is_final=True)


def _stream(spark: SparkSession, options: JoinOptions) -> DataFrame:
    reader = spark.readStream.format("partage").options(
        **{
            "kafka.bootstrap.servers": options.servers,
            "kafka.group.id": options.group,
            "kafka.partition.assignment.strategy": "co-partitioned",
            "subscribe": f"{options.left},{options.right}",
            "startingOffsets": "earliest",
            "columns": "partition",
            **options.source,
        }
    )
    return reader.load()


def batch_source_options(source: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the streaming source that also apply to batch reads.

    Options for streaming queries, group membership and start or end offsets are left out.
    """
    return {name: value for name, value in source.items() if name.lower() not in _STREAM_ONLY_NAMES}


def _stage(rows: DataFrame, place: Path) -> None:
    from pyspark.sql import functions as f

    dated = rows.withColumn("date", f.date_format("timestamp", "yyyy-MM-dd"))
    dated.write.partitionBy("topic", "date").parquet(str(place))
