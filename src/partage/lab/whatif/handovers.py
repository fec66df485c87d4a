"""What became of partitions in a rehearsal: who read them when, and how long nobody did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from partage.lab.whatif.live_group import Partition


class ReaderChange(NamedTuple):
    """A process reads these partitions from now on, and no others."""

    at_ms: int
    process: str
    partitions: frozenset[Partition]


class MembershipChange(NamedTuple):
    """From this moment on these processes come or go."""

    at_ms: int
    processes: frozenset[str]


class HandoverStats(msgspec.Struct, kw_only=True):
    """What became of all partitions; ``stood_still_ms`` adds up what each was read by nobody.

    ``handed_over`` counts how often a partition came to another place in the group, ``shuffled``
    those of them where neither side had just come or was going. ``moved`` partitions are read by
    another place in the end, ``unread`` ones by nobody. ``still_ms_by_second`` is what each second
    has of ``stood_still_ms``.
    """

    unread_ms: int = 0
    longest_gap_ms: int = 0
    handovers: int = 0
    avoidable_handovers: int = 0
    moved: int = 0
    unread: int = 0
    unread_ms_by_second: list[int] = []


def final_readers(timeline: Iterable[ReaderChange]) -> dict[str, frozenset[Partition]]:
    """Who reads what at the end of a timeline."""
    return {process: partitions for _, process, partitions in timeline}


def measure_handovers(
    timeline: Sequence[ReaderChange],
    partitions: Iterable[Partition],
    places: Mapping[str, str],
    disturbances: Sequence[MembershipChange],
    begin_ms: int,
    end_ms: int,
) -> HandoverStats:
    """What became of ``partitions`` from ``begin_ms`` to ``end_ms``.

    ``places`` has the place in the group that a process fills: who comes back after a restart
    fills its predecessor's.
    """
    course = HandoverStats()
    held = final_readers(change for change in timeline if change.at_ms < begin_ms)
    reader = {p: process for process, theirs in held.items() for p in theirs}
    first = {p: places[process] for p, process in reader.items()}
    last = dict(reader)  # who read it last, if nobody does now
    still = {p: begin_ms for p in partitions if p not in reader}
    looked_ms = begin_ms
    for at_ms, process, theirs in timeline:
        if at_ms < begin_ms:
            continue
        if at_ms > looked_ms:
            _add_unread_time(
                course.unread_ms_by_second, len(still), looked_ms - begin_ms, at_ms - begin_ms
            )
            looked_ms = at_ms
        before = held.get(process, frozenset())
        for p in before - theirs:
            if reader.get(p) == process:
                del reader[p]
                still[p] = at_ms
        for p in theirs - before:
            _add_gap(course, at_ms - still.pop(p, at_ms))
            was = last.get(p)
            if was is not None and places[was] != places[process]:
                course.handovers += 1
                course.avoidable_handovers += _changed_processes(disturbances, at_ms).isdisjoint(
                    (was, process)
                )
            reader[p] = last[p] = process
        held[process] = theirs
    _add_unread_time(
        course.unread_ms_by_second, len(still), looked_ms - begin_ms, end_ms - begin_ms
    )
    for since_ms in still.values():
        _add_gap(course, end_ms - since_ms)
    course.unread = len(still)
    course.moved = sum(p in first and places[q] != first[p] for p, q in reader.items())
    return course


def _add_unread_time(ms_by_second: list[int], number: int, from_ms: int, until_ms: int) -> None:
    """So many stood still from one time to another, which goes on where the last one ended."""
    while from_ms < until_ms:
        second = from_ms // 1000
        if second == len(ms_by_second):
            ms_by_second.append(0)
        next_ms = min(until_ms, 1000 * (second + 1))
        ms_by_second[second] += number * (next_ms - from_ms)
        from_ms = next_ms


def _add_gap(course: HandoverStats, for_ms: int) -> None:
    course.unread_ms += for_ms
    course.longest_gap_ms = max(course.longest_gap_ms, for_ms)


def _changed_processes(disturbances: Sequence[MembershipChange], at_ms: int) -> frozenset[str]:
    """Who had just come or was going at that time."""
    for since_ms, processes in reversed(disturbances):
        if since_ms <= at_ms:
            return processes
    return frozenset()
