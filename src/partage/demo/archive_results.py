"""What the applications have made: the table of joined flights, and who brought what when."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from partage.demo.timeline import ArchivedRows
from partage.pipelines.archive.directory import entry_path
from partage.pipelines.archive.manifest import Entry


class Entries:
    """The entries of an archive, looked at again and again while it grows."""

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._read: list[Entry] = []

    def refresh(self) -> list[Entry]:
        """All that there are by now, each read once."""
        while True:
            try:
                content = entry_path(self._archive, len(self._read)).read_bytes()
            except FileNotFoundError:
                return list(self._read)
            self._read.append(msgspec.json.decode(content, type=Entry))


def archived_rows(
    entries: Iterable[Entry], since_began_s: Callable[[int], float]
) -> list[ArchivedRows]:
    """What of which partitions was brought, by whom and when."""
    return [
        ArchivedRows(taken.partition, entry.by, since_began_s(entry.at_ms), taken.rows)
        for entry in entries
        for taken in entry.taken
    ]


def rows_by_partition(path: Path) -> dict[int, list[int]]:
    """The offsets that the table's rows are of, as its files have them."""
    import pyarrow.parquet as pq

    found: dict[int, list[int]] = {}
    for name in sorted(path.glob("topic=*/**/*.parquet")):
        rows = pq.ParquetFile(name).read(columns=["partition", "offset"])
        pairs = zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
        for partition, offset in pairs:
            found.setdefault(partition, []).append(offset)
    return found
