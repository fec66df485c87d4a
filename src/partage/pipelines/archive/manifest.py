"""What an archive holds: the core, without I/O.

An archive is a row of entries, numbered from 0. Each says which offsets of which partitions it
brought, and in which files their rows are. No offset is in two entries: `Manifest.apply` refuses
an entry that has one which is there already, and `Manifest.fresh` says beforehand what of a span
is not there yet. Batches of Spark's do not serve as keys: their numbers are those of one query,
and several queries share an archive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from partage.pipelines.offset_spans import OffsetSpan, OffsetSpans, OverlapError

#: What this program writes, and the only one that it reads.
VERSION: Final = 1
#: The kind of entries whose rows are records as they were read.
ARCHIVE_KIND: Final = "archive"


class ArchivedRange(msgspec.Struct, frozen=True):
    """Offsets ``first`` up to ``end`` of a partition, of which ``rows`` have a record.

    ``topic_id`` is the topic's in hex, "" where it is not known: offsets of a topic that was
    deleted and made anew are other offsets.
    """

    topic: str
    partition: int
    first: int
    end: int
    rows: int
    topic_id: str = ""

    @property
    def span(self) -> OffsetSpan:
        """The offsets."""
        return OffsetSpan(self.first, self.end)


class ArchivedFile(msgspec.Struct, frozen=True):
    """A file: where it was written, and where it belongs; both below the archive's directory."""

    staged: str
    path: str
    rows: int
    bytes: int


class ManifestEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What one batch brought. ``refused`` counts its rows that were in the archive already.

    ``kind`` says what made it, on which terms: rows of two kinds do not belong together.
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
    """A partition's part of an archive; ``spans`` are pairs of a first offset and an end."""

    topic: str
    partition: int
    rows: int
    spans: list[tuple[int, int]]


class ArchiveReport(msgspec.Struct, frozen=True):
    """``partage pipeline archive --report --json``."""

    directory: str
    rows: int
    files: int
    bytes: int
    batches: int
    refused: int
    partitions: list[PartitionReport]


class ManifestError(Exception):
    """Entries that do not follow from one another, or that this version cannot read."""


class Manifest:
    """All entries so far, added up."""

    def __init__(self, entries: Iterable[ManifestEntry] = ()) -> None:
        self._spans: dict[tuple[str, int], OffsetSpans] = {}
        self._rows: dict[tuple[str, int], int] = {}
        self._topic_ids: dict[str, str] = {}
        self._files = self._bytes = self._refused = 0
        self.next_number = 0
        for entry in entries:
            self.apply(entry)

    def apply(self, entry: ManifestEntry) -> None:
        """Add the next entry.

        Raises:
            ManifestError: it is not the next one, or brings offsets that are there already or of
                another topic of that name, or it was written by another version. Nothing of it
                is added.
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
            key = taken.topic, taken.partition
            self._spans.setdefault(key, OffsetSpans()).add(taken.span)
            self._rows[key] = self._rows.get(key, 0) + taken.rows
        self._files += len(entry.files)
        self._bytes += sum(file.bytes for file in entry.files)
        self._refused += entry.refused
        self.next_number += 1

    def check_topics(self, topic_ids: Mapping[str, str]) -> None:
        """Make sure that these topics, with their ids, are those that are archived.

        Raises:
            ManifestError: one was made anew since.
        """
        for name, topic_id in topic_ids.items():
            known = self._topic_ids.get(name)
            if known and topic_id and known != topic_id:
                raise ManifestError(
                    f"topic {name!r} was deleted and recreated since it was archived; use another "
                    "--output for the new topic"
                )

    def missing_spans(self, topic: str, partition: int, span: OffsetSpan) -> list[OffsetSpan]:
        """The parts of a span that the archive does not have, in order."""
        found = self._spans.get((topic, partition))
        return [span] if found is None else found.missing(span)

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Where the archived offsets of each partition end."""
        return {p: spans.end for (name, p), spans in self._spans.items() if name == topic}

    def report(self, directory: str) -> ArchiveReport:
        """The whole in figures."""
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
        for (topic, partition), spans in sorted(self._spans.items()):
            rows = self._rows[topic, partition]
            yield PartitionReport(topic, partition, rows, [(first, end) for first, end in spans])

    def _check_ranges(self, entry: ManifestEntry) -> None:
        """Look at the entry as a whole, so that a refused one leaves nothing behind."""
        within: dict[tuple[str, int], OffsetSpans] = {}
        for taken in entry.taken:
            if not 0 <= taken.first < taken.end or not 0 <= taken.rows <= len(taken.span):
                raise ManifestError(f"entry {entry.number} has an invalid range: {taken}")
            try:
                within.setdefault((taken.topic, taken.partition), OffsetSpans()).add(taken.span)
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
