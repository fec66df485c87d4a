"""Stores of a coordinator's durable records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class RecordStore(Protocol):
    """A store that a coordinator's shell appends to, one batch at a time."""

    async def append(self, records: Sequence[Any]) -> None:
        """Return when all records are durable.

        It repeats what may succeed later. Any exception stops the coordinator.
        """


class MemoryRecordStore:
    """A store that lasts as long as its process, for tests and for coordinators that never fail
    over.
    """

    def __init__(self) -> None:
        self.records: list[Any] = []

    async def append(self, records: Sequence[Any]) -> None:
        """Keep the records."""
        self.records.extend(records)
