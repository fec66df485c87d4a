"""Checks the events of a group's members against rules, without knowledge of the members.

Each function returns violations as sentences; an empty list means success. The rules follow Kafka's
system tests for consumers:

* a record comes only from a partition that the member owns, in order and without a gap;
* a commit is for a partition that the member owns, and not beyond what it has consumed;
* an assigned partition was not owned before, a revoked one was;
* no partition has two owners at a time;
* a new owner starts where the previous one ended; after a kill, between the last commit and the
  last record;
* every record is consumed.

All times come from one machine's clock. The ``at`` of an event that gives up a partition is earlier
than that of the event that takes it over, because the former precedes the member's rejoin.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

#: Precision of the times: peers round them to milliseconds.
CLOCK_S = 0.002

Event = dict[str, Any]
Partition = tuple[str, int]


@dataclass
class History:
    """All events of one member, and the time at which it was killed, if it was."""

    name: str
    events: list[Event] = field(default_factory=list)
    reports_commits: bool = True
    killed_at: float | None = None

    def owned_now(self) -> set[Partition]:
        """Return the partitions that it owns after its last event."""
        owned: set[Partition] = set()
        for event in list(self.events):
            if event["event"] == "assigned":
                owned |= _partitions(event)
            elif event["event"] in ("revoked", "lost"):
                owned -= _partitions(event)
            elif event["event"] == "closed":
                owned.clear()
        return owned


@dataclass
class Tenure:
    """The period in which one member owned one partition."""

    member: str
    partition: Partition
    since: float
    until: float = float("inf")
    offsets: list[int] = field(default_factory=list)
    committed: int | None = None
    #: True if everything consumed was committed at its end.
    settled: bool = False

    @property
    def position(self) -> int | None:
        """Offset after the last record, if there was one."""
        return self.offsets[-1] + 1 if self.offsets else None


def judge(histories: Sequence[History], records: Iterable[tuple[str, int, int]] = ()) -> list[str]:
    """Check all rules. ``records`` must have been consumed."""
    tenures: list[Tenure] = []
    violations: list[str] = []
    for history in histories:
        own, found = tenures_of(history)
        tenures += own
        violations += found
    violations += overlaps(tenures)
    violations += jumps(tenures)
    violations += missing(histories, records)
    return violations


def tenures_of(history: History) -> tuple[list[Tenure], list[str]]:
    """Return a member's tenures, and the violations in its own events."""
    reader = _Reader(history)
    for event in history.events:
        reader.read(event)
    return reader.finished(), reader.violations


def overlaps(tenures: Iterable[Tenure]) -> list[str]:
    """Return violations where a partition has two owners at a time."""
    violations = []
    for partition, held in _by_partition(tenures).items():
        for before, after in itertools.pairwise(held):
            if after.since < before.until - CLOCK_S:
                violations.append(
                    f"{partition} belonged to {before.member} until {before.until:.3f} and to "
                    f"{after.member} since {after.since:.3f}"
                )
    return violations


def jumps(tenures: Iterable[Tenure], starts: Mapping[Partition, int] | None = None) -> list[str]:
    """Return tenures with a wrong first offset; first tenures must start at ``starts`` or 0."""
    violations = []
    for partition, held in _by_partition(tenures).items():
        lowest = highest = (starts or {}).get(partition, 0)
        for tenure in held:
            if tenure.offsets and not lowest <= tenure.offsets[0] <= highest:
                where = str(lowest) if lowest == highest else f"{lowest} to {highest}"
                violations.append(
                    f"{tenure.member} began {partition} at {tenure.offsets[0]}, not at {where}"
                )
            if tenure.committed is not None:
                lowest = max(lowest, tenure.committed)
            if tenure.position is not None:
                highest = max(highest, tenure.position)
                if tenure.settled:
                    lowest = highest
    return violations


def missing(histories: Iterable[History], records: Iterable[tuple[str, int, int]]) -> list[str]:
    """Return records that no member consumed."""
    seen = {
        (event["topic"], event["partition"], event["offset"])
        for history in histories
        for event in history.events
        if event["event"] == "record"
    }
    lost = sorted(set(records) - seen)
    return [f"{len(lost)} records were not consumed: {lost[:10]}"] if lost else []


def repeated(histories: Iterable[History]) -> set[tuple[str, int, int]]:
    """Return records that were consumed more than once, which a kill allows."""
    once: set[tuple[str, int, int]] = set()
    twice: set[tuple[str, int, int]] = set()
    for history in histories:
        for event in history.events:
            if event["event"] == "record":
                record = (event["topic"], event["partition"], event["offset"])
                (twice if record in once else once).add(record)
    return twice


def repetitions(histories: Iterable[History]) -> list[str]:
    """Return a sentence for each partition with repeated records, with the events that explain it.

    These are the readers of the first repeated record, and when each member of them got and gave up
    the partition, committed it, or reported an error.
    """
    histories = list(histories)
    first: dict[Partition, int] = {}
    for topic, number, offset in sorted(repeated(histories), reverse=True):
        first[topic, number] = offset
    return [
        f"{partition} was read twice from {offset} on: "
        + "; ".join(_story(histories, partition, offset))
        for partition, offset in sorted(first.items())
    ]


def _story(histories: Sequence[History], partition: Partition, offset: int) -> list[str]:
    """Return the events around a repeated record, in order of time."""
    found: list[tuple[float, str]] = []
    for history in histories:
        own: list[tuple[float, str]] = []
        is_reader = False
        for event in list(history.events):
            what, at = event["event"], event.get("at", 0.0)
            if what == "record" and (event["topic"], event["partition"]) == partition:
                if event["offset"] == offset:
                    is_reader = True
                    own.append((at, f"{history.name} read it"))
            elif what in ("assigned", "revoked", "lost") and partition in _partitions(event):
                own.append((at, f"{history.name} {what}"))
            elif what == "committed":
                own += [
                    (at, f"{history.name} committed {position}")
                    for topic, number, position in event["offsets"]
                    if (topic, number) == partition
                ]
            elif what == "error":
                own.append((at, f"{history.name} error: {event['message']}"))
        if is_reader:
            found += own
    return [f"{at:.3f} {what}" for at, what in sorted(found)]


class _Reader:
    """Reads one member's events in order."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._open: dict[Partition, Tenure] = {}
        self._ended: list[Tenure] = []
        self._refused = False
        self.violations: list[str] = []

    def read(self, event: Event) -> None:
        rule = self._RULES.get(event["event"])
        if rule is not None:
            rule(self, event)

    def finished(self) -> list[Tenure]:
        killed_at = self._history.killed_at
        if killed_at is not None:
            self._end(set(self._open), killed_at, settled=False)
        return [*self._ended, *self._open.values()]

    def _assigned(self, event: Event) -> None:
        for partition in sorted(_partitions(event)):
            if partition in self._open:
                self._complain(f"was assigned {partition}, which it owned")
            self._open[partition] = Tenure(self._history.name, partition, event["at"])

    def _revoked(self, event: Event) -> None:
        self._end(_partitions(event), event["at"], settled=not self._refused)

    def _lost(self, event: Event) -> None:
        self._end(_partitions(event), event["at"], settled=False)

    def _closed(self, event: Event) -> None:
        self._end(set(self._open), event["at"], settled=not self._refused)

    def _record(self, event: Event) -> None:
        partition = (event["topic"], event["partition"])
        tenure = self._open.get(partition)
        if tenure is None:
            self._complain(f"consumed {partition} at {event['offset']} without owning it")
            return
        if tenure.position is not None and event["offset"] != tenure.position:
            self._complain(f"consumed {partition} at {event['offset']} after {tenure.position - 1}")
        tenure.offsets.append(event["offset"])

    def _committed(self, event: Event) -> None:
        for topic, number, offset in event["offsets"]:
            tenure = self._open.get((topic, number))
            if tenure is None:
                self._complain(f"committed {topic} {number} without owning it")
            elif offset > (tenure.position if tenure.position is not None else offset):
                self._complain(f"committed {topic} {number} at {offset}, beyond its position")
            else:
                tenure.committed = offset

    def _error(self, event: Event) -> None:
        # After a rejected commit the next owner may consume some records again.
        self._refused = True

    def _end(self, partitions: set[Partition], at: float, *, settled: bool) -> None:
        for partition in sorted(partitions):
            tenure = self._open.pop(partition, None)
            if tenure is None:
                self._complain(f"gave up {partition}, which it did not own")
                continue
            unreported = not self._history.reports_commits
            whole = unreported or tenure.committed == tenure.position
            tenure.until, tenure.settled = at, settled and whole
            self._ended.append(tenure)

    def _complain(self, what: str) -> None:
        self.violations.append(f"{self._history.name} {what}")

    _RULES: ClassVar[dict[str, Callable[[_Reader, Event], None]]] = {
        "assigned": _assigned,
        "revoked": _revoked,
        "lost": _lost,
        "record": _record,
        "committed": _committed,
        "error": _error,
        "closed": _closed,
    }


def _partitions(event: Event) -> set[Partition]:
    return {(topic, number) for topic, number in event["partitions"]}


def _by_partition(tenures: Iterable[Tenure]) -> dict[Partition, list[Tenure]]:
    held: dict[Partition, list[Tenure]] = {}
    for tenure in tenures:
        held.setdefault(tenure.partition, []).append(tenure)
    for each in held.values():
        each.sort(key=lambda tenure: (tenure.since, tenure.until))
    return held
