"""Handovers of partitions in a simulation: their readers over time, and times without one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from partage.model.topic_partition import TopicPartition


class ReaderChange(NamedTuple):
    """A process reads exactly these partitions from now on."""

    at_ms: int
    process: str
    partitions: frozenset[TopicPartition]


class MembershipChange(NamedTuple):
    """These processes start or stop at this time."""

    at_ms: int
    processes: frozenset[str]


class HandoverStats(msgspec.Struct, kw_only=True):
    """Handover statistics of all partitions.

    Attributes:
        unread_ms: Time in which a partition was read by no process, summed over all partitions.
        longest_gap_ms: Longest time in which one partition was read by no process.
        handovers: How often a partition moved to another member of the live group.
        avoidable_handovers: Handovers between two members of which neither started nor stopped.
        moved: Partitions that a member reads at the end which did not at the begin.
        unread: Partitions that no member reads at the end.
        unread_ms_by_second: ``unread_ms`` of each second.
    """

    unread_ms: int = 0
    longest_gap_ms: int = 0
    handovers: int = 0
    avoidable_handovers: int = 0
    moved: int = 0
    unread: int = 0
    unread_ms_by_second: list[int] = []


def final_readers(timeline: Iterable[ReaderChange]) -> dict[str, frozenset[TopicPartition]]:
    """Return the partitions that each process reads at the end of a timeline."""
    return {process: partitions for _, process, partitions in timeline}


def newest_readers(timeline: Iterable[ReaderChange]) -> Iterator[ReaderChange]:
    """Return a timeline in which each partition is read only by its newest reader.

    Some assignors give a partition to several members. Each of them reads all of its records, so
    the lag of the partition falls only once.
    """
    held: dict[str, frozenset[TopicPartition]] = {}
    readers: dict[TopicPartition, list[str]] = {}  # the newest one last
    for at_ms, process, owned in timeline:
        before = held.get(process, frozenset())
        held[process] = owned
        heirs: dict[str, None] = {}
        for p in sorted(before - owned):
            was_newest = readers[p][-1] == process
            readers[p].remove(process)
            if was_newest and readers[p]:
                heirs[readers[p][-1]] = None
        for p in owned - before:
            readers.setdefault(p, []).append(process)
        for each in (process, *heirs):
            newest = frozenset(p for p in held[each] if readers[p][-1] == each)
            yield ReaderChange(at_ms, each, newest)


def measure_handovers(
    timeline: Sequence[ReaderChange],
    partitions: Iterable[TopicPartition],
    member_by_process: Mapping[str, str],
    membership_changes: Sequence[MembershipChange],
    begin_ms: int,
    end_ms: int,
) -> HandoverStats:
    """Measure the handovers of ``partitions`` from ``begin_ms`` to ``end_ms``.

    Args:
        timeline: All changes, in order.
        partitions: The partitions.
        member_by_process: The live member that each process stands for; a restarted process
            replaces its predecessor.
        membership_changes: Starts and stops of processes, in order.
        begin_ms: Begin of the measurement.
        end_ms: End of the measurement.
    """
    stats = HandoverStats()
    held = final_readers(change for change in timeline if change.at_ms < begin_ms)
    last = {p: process for process, owned in held.items() for p in owned}
    first: dict[TopicPartition, set[str]] = {}
    readers: dict[TopicPartition, set[str]] = {}  # processes; assignors may name several
    for process, owned in held.items():
        for p in owned:
            readers.setdefault(p, set()).add(process)
            first.setdefault(p, set()).add(member_by_process[process])
    unread_since = {p: begin_ms for p in partitions if p not in readers}
    counted_ms = begin_ms
    for at_ms, process, owned in timeline:
        if at_ms < begin_ms:
            continue
        if at_ms > counted_ms:
            _add_unread_time(
                stats.unread_ms_by_second,
                len(unread_since),
                counted_ms - begin_ms,
                at_ms - begin_ms,
            )
            counted_ms = at_ms
        before = held.get(process, frozenset())
        for p in before - owned:
            readers[p].discard(process)
            if not readers[p]:
                unread_since[p] = at_ms
        for p in owned - before:
            _add_gap(stats, at_ms - unread_since.pop(p, at_ms))
            previous = last.get(p)
            if previous is not None and member_by_process[previous] != member_by_process[process]:
                stats.handovers += 1
                stats.avoidable_handovers += _changed_processes(
                    membership_changes, at_ms
                ).isdisjoint((previous, process))
            readers.setdefault(p, set()).add(process)
            last[p] = process
        held[process] = owned
    _add_unread_time(
        stats.unread_ms_by_second, len(unread_since), counted_ms - begin_ms, end_ms - begin_ms
    )
    for since_ms in unread_since.values():
        _add_gap(stats, end_ms - since_ms)
    stats.unread = len(unread_since)
    stats.moved = sum(
        p in first and not first[p].issuperset(member_by_process[each] for each in processes)
        for p, processes in readers.items()
    )
    return stats


def _add_unread_time(ms_by_second: list[int], number: int, from_ms: int, until_ms: int) -> None:
    """Add the unread time of ``number`` partitions. ``from_ms`` is the end of the previous call."""
    while from_ms < until_ms:
        second = from_ms // 1000
        if second == len(ms_by_second):
            ms_by_second.append(0)
        next_ms = min(until_ms, 1000 * (second + 1))
        ms_by_second[second] += number * (next_ms - from_ms)
        from_ms = next_ms


def _add_gap(stats: HandoverStats, for_ms: int) -> None:
    stats.unread_ms += for_ms
    stats.longest_gap_ms = max(stats.longest_gap_ms, for_ms)


def _changed_processes(
    membership_changes: Sequence[MembershipChange], at_ms: int
) -> frozenset[str]:
    """Return the processes of the latest membership change at that time."""
    for since_ms, processes in reversed(membership_changes):
        if since_ms <= at_ms:
            return processes
    return frozenset()
