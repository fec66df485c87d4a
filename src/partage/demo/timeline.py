"""Who owned which partition when, made of looks at the group and of what was brought."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

#: By the name of the application.
Owners = Mapping[str, tuple[int, ...]]


class OwnershipInterval(NamedTuple):
    """A partition was somebody's from one time to another, in seconds."""

    partition: int
    owner: str
    from_s: float
    to_s: float


class ArchivedRows(NamedTuple):
    """Somebody brought so many of a partition's rows at a time."""

    partition: int
    by: str
    at_s: float
    rows: int


class TimelineEvent(NamedTuple):
    """Something worth a line in the picture."""

    what: str
    at_s: float


class OwnershipTimeline:
    """Looks at a group, in the order of their times; an ownership lasts until a look without it."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, str], float] = {}
        self._closed: list[OwnershipInterval] = []
        self.events: list[TimelineEvent] = []
        self.last_s = 0.0

    def add_owners(self, at_s: float, owners: Owners) -> None:
        """Who owns what at this time."""
        now = {(partition, owner) for owner, owned in owners.items() for partition in owned}
        for key in self._open.keys() - now:
            self._closed.append(OwnershipInterval(*key, self._open.pop(key), at_s))
        for key in now - self._open.keys():
            self._open[key] = at_s
        self.last_s = at_s

    def add_event(self, what: str, at_s: float) -> None:
        """Something did."""
        self.events.append(TimelineEvent(what, at_s))

    @property
    def owned(self) -> list[OwnershipInterval]:
        """All ownerships, those that last as far as the last look."""
        still = [OwnershipInterval(*key, since, self.last_s) for key, since in self._open.items()]
        return sorted(self._closed + still)


def stayed(before: Owners, after: Owners) -> int:
    """How many partitions have the owner that they had."""
    return sum(len(set(owned) & set(after.get(owner, ()))) for owner, owned in before.items())
