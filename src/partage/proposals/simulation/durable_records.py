"""The durable records of the coordinators of a world."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any


class DurableRecords:
    """Records in the order of their writes. A record replaces the earlier one with its key.

    Without this compaction, each rebalance of a two-phase design would add the metadata of all
    members.

    Args:
        key: Returns the key of a record; None for a record that is kept.
    """

    def __init__(self, key: Callable[[Any], Hashable | None]) -> None:
        self._key = key
        self._records: dict[Hashable, Any] = {}
        self._kept = 0

    def __iter__(self) -> Iterator[Any]:
        return iter(self._records.values())

    def extend(self, records: Iterable[Any]) -> None:
        """Append records."""
        for record in records:
            key = self._key(record)
            if key is None:
                self._kept += 1
                key = self._kept
            self._records.pop(key, None)  # the later record has the later position
            self._records[key] = record
