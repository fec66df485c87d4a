"""Conversion of staged files to a manifest entry: measure, trim and sync each file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from partage.model.topic_partition import TopicPartition
from partage.pipelines.archive.deduplication import batch_ranges, unarchived_spans
from partage.pipelines.archive.directory import ArchiveDirectory, StagingDirectory
from partage.pipelines.archive.manifest import (
    ARCHIVE_KIND,
    ArchivedFile,
    ArchivedRange,
    ManifestEntry,
)
from partage.pipelines.offset_spans import OffsetSpan

if TYPE_CHECKING:
    import pyarrow as pa

_TOPIC: Final = "topic="


class PartitionRows(NamedTuple):
    """Rows of one partition in a file: their offset span and their number."""

    span: OffsetSpan
    rows: int


class StagedFile(NamedTuple):
    """A Parquet file written by Spark; all its rows belong to one topic."""

    path: Path
    topic: str
    partitions: Mapping[int, PartitionRows]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.partitions.values())


class BatchArchiver:
    """Adds batches to an archive, one after another.

    Args:
        archive: the archive's directory.
        staging: the staging directory of this run.
        by: name of this run, stored in the entries for information.
        now_ms: clock, in ms since the epoch.
    """

    def __init__(
        self,
        archive: ArchiveDirectory,
        staging: StagingDirectory,
        by: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._archive = archive
        self._staging = staging
        self._by = by
        self._now_ms = now_ms
        self.rows = 0
        self.refused = 0

    def archive_batch(
        self,
        name: str,
        write: Callable[[Path], None],
        topic_ids: Mapping[str, str] = MappingProxyType({}),
    ) -> ManifestEntry | None:
        """Stage a batch with ``write`` and archive the rows that are new.

        A record is archived once, even if this or another run archives the same batch again. The
        records are archived when the call returns.

        Args:
            name: prefix of the staging path.
            write: writes the batch as Parquet files below the given path.
            topic_ids: topic ids in hex by topic name; "" if unknown.

        Returns:
            The new entry, or None if no row was new.

        Raises:
            ArchiveDirectoryError, ManifestError: as `ArchiveDirectory.refresh`, or if a topic was
                recreated since it was archived.
            OSError: if the disk fails. Then either all new rows are archived, or none.
        """
        place = self._staging.new_path(name)
        try:
            write(place)
            return self._archive_files(list(list_staged_files(place)), place, topic_ids)
        finally:
            # otherwise the files are archived and must still be moved
            if self._archive.has_moved_all:
                shutil.rmtree(place, ignore_errors=True)

    def _archive_files(
        self, staged: list[StagedFile], place: Path, topic_ids: Mapping[str, str]
    ) -> ManifestEntry | None:
        ranges = batch_ranges(
            (TopicPartition(file.topic, partition), part.span)
            for file in staged
            for partition, part in file.partitions.items()
        )
        while True:
            self._archive.refresh()
            self._archive.manifest.check_topics(topic_ids)
            spans = unarchived_spans(self._archive.manifest, ranges)
            entry = self._entry(staged, ranges, spans, place, topic_ids)
            if not entry.taken:
                self.refused += entry.refused
                return None
            if self._archive.publish(entry, self._staging):
                self._archive.refresh()  # this moves the entry's files
                self.rows += sum(taken.rows for taken in entry.taken)
                self.refused += entry.refused
                return entry

    def _entry(
        self,
        staged: list[StagedFile],
        ranges: Mapping[TopicPartition, OffsetSpan],
        spans: Mapping[TopicPartition, list[OffsetSpan]],
        place: Path,
        topic_ids: Mapping[str, str],
    ) -> ManifestEntry:
        """Return the entry for these spans. Rewrite a file if it has rows outside them."""
        rows = dict.fromkeys(((at, span) for at in sorted(spans) for span in spans[at]), 0)
        files = []
        for file in staged:
            mine = {
                partition: spans[TopicPartition(file.topic, partition)]
                for partition in file.partitions
            }
            if all(spans == [ranges[TopicPartition(file.topic, p)]] for p, spans in mine.items()):
                kept, counts = file, {(p, mine[p][0]): file.partitions[p].rows for p in mine}
            else:
                kept, counts = trim_file(file, mine)
            for (partition, span), count in counts.items():
                rows[TopicPartition(file.topic, partition), span] += count
            if kept.rows:
                files.append(self._archived_file(kept, place))
        taken = [
            ArchivedRange(*at, span.first, span.end, count, topic_ids.get(at[0], ""))
            for (at, span), count in rows.items()
        ]
        return ManifestEntry(
            number=self._archive.manifest.next_number,
            taken=taken,
            files=files,
            refused=sum(file.rows for file in staged) - sum(rows.values()),
            at_ms=self._now_ms(),
            by=self._by,
            kind=self._archive.kind or ARCHIVE_KIND,
        )

    def _archived_file(self, file: StagedFile, place: Path) -> ArchivedFile:
        _sync(file.path)
        return ArchivedFile(
            staged=str(file.path.relative_to(self._archive.path)),
            path=str(file.path.relative_to(place)),
            rows=file.rows,
            bytes=file.path.stat().st_size,
        )


def list_staged_files(place: Path) -> Iterator[StagedFile]:
    """Yield the files below each directory ``topic=NAME``, with the offsets of their rows."""
    import pyarrow.parquet as pq

    for path in sorted(place.glob(f"{_TOPIC}*/**/*.parquet")):
        topic = path.relative_to(place).parts[0].removeprefix(_TOPIC)
        # Read each file by itself: a dataset schema would add the columns of the path.
        table = pq.ParquetFile(path).read(columns=["partition", "offset"])
        parts = _rows_by_partition(table)
        if parts:
            yield StagedFile(path, topic, parts)


def _rows_by_partition(table: pa.Table) -> dict[int, PartitionRows]:
    found = table.group_by("partition").aggregate(
        [("offset", "min"), ("offset", "max"), ("offset", "count")]
    )
    return {
        row["partition"]: PartitionRows(
            OffsetSpan(row["offset_min"], row["offset_max"] + 1), row["offset_count"]
        )
        for row in found.to_pylist()
    }


def trim_file(
    file: StagedFile, spans: Mapping[int, list[OffsetSpan]]
) -> tuple[StagedFile, dict[tuple[int, OffsetSpan], int]]:
    """Return the file with only the rows in these spans, and the row count of each span."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.ParquetFile(file.path).read()
    masks = {}
    for partition, wanted_spans in spans.items():
        is_of_it = pc.equal(table["partition"], partition)
        for span in wanted_spans:
            is_in_it = pc.and_(
                pc.greater_equal(table["offset"], span.first), pc.less(table["offset"], span.end)
            )
            masks[partition, span] = pc.and_(is_of_it, is_in_it)
    counts = {key: pc.sum(mask).as_py() or 0 for key, mask in masks.items()}
    keep = None
    for mask in masks.values():
        keep = mask if keep is None else pc.or_(keep, mask)
    kept = table.slice(0, 0) if keep is None else table.filter(keep)
    path = file.path
    if kept.num_rows:
        # Use a new name at each attempt: an entry that lost the race may have other rows.
        path = path.with_name(f"{path.name.split('.')[0]}-{os.urandom(4).hex()}.snappy.parquet")
        pq.write_table(kept, path, coerce_timestamps="us", allow_truncated_timestamps=True)
    return StagedFile(path, file.topic, _rows_by_partition(kept)), counts


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
