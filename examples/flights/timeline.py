"""Owners of partitions over time, from polling the group and from the archive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

#: Partitions by name of the application.
Owners = Mapping[str, tuple[int, ...]]


class OwnershipInterval(NamedTuple):
    """An interval in which an application owned a partition, in seconds."""

    partition: int
    owner: str
    from_s: float
    to_s: float


class ArchivedRows(NamedTuple):
    """Rows of a partition that an application archived at a time."""

    partition: int
    by: str
    at_s: float
    rows: int


class TimelineEvent(NamedTuple):
    """An event to mark in the chart."""

    what: str
    at_s: float


class OwnershipTimeline:
    """Owners over time. An interval ends at the first poll with another owner."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, str], float] = {}
        self._closed: list[OwnershipInterval] = []
        self.events: list[TimelineEvent] = []
        self.last_s = 0.0

    def add_owners(self, at_s: float, owners: Owners) -> None:
        """Add the owners at a time."""
        now = {(partition, owner) for owner, owned in owners.items() for partition in owned}
        for key in self._open.keys() - now:
            self._closed.append(OwnershipInterval(*key, self._open.pop(key), at_s))
        for key in now - self._open.keys():
            self._open[key] = at_s
        self.last_s = at_s

    def add_event(self, what: str, at_s: float) -> None:
        """Add an event."""
        self.events.append(TimelineEvent(what, at_s))

    @property
    def owned(self) -> list[OwnershipInterval]:
        """All intervals; current ones end at the last poll."""
        still = [OwnershipInterval(*key, since, self.last_s) for key, since in self._open.items()]
        return sorted(self._closed + still)


def stayed(before: Owners, after: Owners) -> int:
    """Return the number of partitions that kept their owner."""
    return sum(len(set(owned) & set(after.get(owner, ()))) for owner, owned in before.items())
