"""Results in the archive: its rows, and the application and time of each part."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from examples.flights.timeline import ArchivedRows
from partage.pipelines.archive.directory import entry_path
from partage.pipelines.archive.manifest import ManifestEntry


class Entries:
    """The entries of a growing archive."""

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._read: list[ManifestEntry] = []

    def refresh(self) -> list[ManifestEntry]:
        """Read new entries. Return all entries."""
        while True:
            try:
                content = entry_path(self._archive, len(self._read)).read_bytes()
            except FileNotFoundError:
                return list(self._read)
            self._read.append(msgspec.json.decode(content, type=ManifestEntry))


def archived_rows(
    entries: Iterable[ManifestEntry], since_began_s: Callable[[int], float]
) -> list[ArchivedRows]:
    """Return the rows that each application added to a partition, with the time."""
    return [
        ArchivedRows(taken.partition, entry.by, since_began_s(entry.at_ms), taken.rows)
        for entry in entries
        for taken in entry.taken
    ]


def rows_by_partition(path: Path) -> dict[int, list[int]]:
    """Return the offsets of the rows in the Parquet files, by partition."""
    import pyarrow.parquet as pq

    found: dict[int, list[int]] = {}
    for name in sorted(path.glob("topic=*/**/*.parquet")):
        rows = pq.ParquetFile(name).read(columns=["partition", "offset"])
        pairs = zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
        for partition, offset in pairs:
            found.setdefault(partition, []).append(offset)
    return found
