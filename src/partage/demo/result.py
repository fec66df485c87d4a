"""What the applications have made: the table of joined flights, and who brought what when."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from partage.demo.timeline import Brought
from partage.pipelines.archive.manifest import Entry

_ENTRIES: Final = "_manifest/0*.json"


def brought(path: Path, since_began_s: Callable[[int], float]) -> list[Brought]:
    """The batches in an archive, by partition and time."""
    found = []
    for name in sorted(path.glob(_ENTRIES)):
        entry = msgspec.json.decode(name.read_bytes(), type=Entry)
        at_s = since_began_s(entry.at_ms)
        found += [Brought(t.partition, entry.by, at_s, t.rows) for t in entry.taken]
    return found


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
