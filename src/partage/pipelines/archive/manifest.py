"""Manifest of an archive; no I/O.

The manifest is a sequence of entries, numbered from 0. Each entry names the offsets of each
partition that it added, and the files with their rows. No offset is in two entries:
`Manifest.apply` rejects such an entry, and `Manifest.missing_spans` returns the offsets that are
still missing. Spark's batch numbers cannot serve as keys: they belong to one query, but several
queries can share an archive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from partage.model.topic_partition import TopicPartition
from partage.pipelines.offset_spans import OffsetSpan, OffsetSpans, OverlapError

#: Format version that this program writes, and the only one that it reads.
VERSION: Final = 1
#: Kind of an entry whose rows are unchanged records.
ARCHIVE_KIND: Final = "archive"


class ArchivedRange(msgspec.Struct, frozen=True):
    """Offsets ``first`` up to, not including, ``end`` of a partition, with ``rows`` records.

    ``topic_id`` is in hex, or "" if unknown. It distinguishes a recreated topic, whose offsets
    start again at 0.
    """

    topic: str
    partition: int
    first: int
    end: int
    rows: int
    topic_id: str = ""

    @property
    def span(self) -> OffsetSpan:
        """The offsets as a span."""
        return OffsetSpan(self.first, self.end)


class ArchivedFile(msgspec.Struct, frozen=True):
    """A file: its staging path and its final path, both relative to the archive's directory."""

    staged: str
    path: str
    rows: int
    bytes: int


class ManifestEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The data added by one batch. ``refused`` counts rows that were already archived.

    ``kind`` names the pipeline and its settings. Rows of different kinds must not share an archive.
    """

    number: int
    taken: list[ArchivedRange]
    files: list[ArchivedFile]
    refused: int = 0
    at_ms: int
    by: str
    kind: str = ARCHIVE_KIND
    version: int = VERSION


class PartitionReport(msgspec.Struct, frozen=True):
    """A partition in an archive; ``spans`` are pairs of first offset and end offset."""

    topic: str
    partition: int
    rows: int
    spans: list[tuple[int, int]]


class ArchiveReport(msgspec.Struct, frozen=True):
    """Report of ``partage pipeline archive --report --json``."""

    directory: str
    rows: int
    files: int
    bytes: int
    batches: int
    refused: int
    partitions: list[PartitionReport]


class ManifestError(Exception):
    """An entry contradicts the entries before it, or has an unsupported version."""


class Manifest:
    """Sum of all entries."""

    def __init__(self, entries: Iterable[ManifestEntry] = ()) -> None:
        self._spans: dict[TopicPartition, OffsetSpans] = {}
        self._rows: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, str] = {}
        self._files = self._bytes = self._refused = 0
        self.next_number = 0
        for entry in entries:
            self.apply(entry)

    def apply(self, entry: ManifestEntry) -> None:
        """Add the next entry.

        Raises:
            ManifestError: if the entry has another number or version, contains archived offsets, or
                has a recreated topic. The manifest is then unchanged.
        """
        if entry.version != VERSION:
            raise ManifestError(
                f"entry {entry.number} has version {entry.version}; this program reads {VERSION}"
            )
        if entry.number != self.next_number:
            raise ManifestError(f"found entry {entry.number} instead of entry {self.next_number}")
        topic_ids = {taken.topic: taken.topic_id for taken in entry.taken}
        self.check_topics(topic_ids)
        self._check_ranges(entry)
        self._topic_ids |= {name: each for name, each in topic_ids.items() if each}
        for taken in entry.taken:
            key = TopicPartition(taken.topic, taken.partition)
            self._spans.setdefault(key, OffsetSpans()).add(taken.span)
            self._rows[key] = self._rows.get(key, 0) + taken.rows
        self._files += len(entry.files)
        self._bytes += sum(file.bytes for file in entry.files)
        self._refused += entry.refused
        self.next_number += 1

    def check_topics(self, topic_ids: Mapping[str, str]) -> None:
        """Check that these topics have the same ids as the archived topics.

        Raises:
            ManifestError: if a topic was recreated since it was archived.
        """
        for name, topic_id in topic_ids.items():
            known = self._topic_ids.get(name)
            if known and topic_id and known != topic_id:
                raise ManifestError(
                    f"topic {name!r} was deleted and recreated since it was archived; use another "
                    "--output for the new topic"
                )

    def missing_spans(self, topic: str, partition: int, span: OffsetSpan) -> list[OffsetSpan]:
        """Return the parts of a span that the archive lacks, in order."""
        found = self._spans.get(TopicPartition(topic, partition))
        return [span] if found is None else found.missing(span)

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Return the end of the archived offsets of each partition."""
        return {p: spans.end for (name, p), spans in self._spans.items() if name == topic}

    def report(self, directory: str) -> ArchiveReport:
        """Return a report of the whole archive."""
        return ArchiveReport(
            directory=directory,
            rows=sum(self._rows.values()),
            files=self._files,
            bytes=self._bytes,
            batches=self.next_number,
            refused=self._refused,
            partitions=list(self._partitions()),
        )

    def _partitions(self) -> Iterator[PartitionReport]:
        for key, spans in sorted(self._spans.items()):
            rows = self._rows[key]
            yield PartitionReport(
                key.topic, key.partition, rows, [(first, end) for first, end in spans]
            )

    def _check_ranges(self, entry: ManifestEntry) -> None:
        """Check all ranges before any change, so that a rejected entry changes nothing."""
        within: dict[TopicPartition, OffsetSpans] = {}
        for taken in entry.taken:
            if not 0 <= taken.first < taken.end or not 0 <= taken.rows <= len(taken.span):
                raise ManifestError(f"entry {entry.number} has an invalid range: {taken}")
            try:
                key = TopicPartition(taken.topic, taken.partition)
                within.setdefault(key, OffsetSpans()).add(taken.span)
                is_fresh = self.missing_spans(taken.topic, taken.partition, taken.span) == [
                    taken.span
                ]
            except OverlapError:
                is_fresh = False
            if not is_fresh:
                raise ManifestError(
                    f"entry {entry.number} has offsets {taken.first} to {taken.end} of "
                    f"{taken.topic}-{taken.partition}, some of which are already archived"
                )
