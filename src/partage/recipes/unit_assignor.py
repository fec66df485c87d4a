"""The assignment of units to workers: a pure function, incremental as Kafka Connect's (KIP-415).

A worker keeps its running units unless it has more than its share. Then it stops some, which start
on other workers in the next generation. The units of a lost worker wait for its return for a while,
so that a restart moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec


class PoolSnapshot(msgspec.Struct, frozen=True):
    """The placement of units in a generation, and how long units have waited for a lost worker."""

    generation: int = -1
    placed: Mapping[str, str] = {}  # worker names by unit
    waited_ms: Mapping[str, int] = {}  # wait times of units whose worker is lost


class PoolWorker(msgspec.Struct, frozen=True):
    """A worker and its running units; ``name`` identifies it after a restart."""

    member_id: str
    name: str
    owned: frozenset[str] = frozenset()
    view: PoolSnapshot = PoolSnapshot()


class UnitAssignment(msgspec.Struct, frozen=True):
    """Units by member id; ``moving`` units stop now and start elsewhere in the next generation."""

    units: Mapping[str, Sequence[str]]
    moving: frozenset[str]
    view: PoolSnapshot
    again_ms: int | None  # time until the first delayed unit is given to another worker


def assign_units(
    units: Iterable[str], workers: Sequence[PoolWorker], delay_ms: int, generation: int = 0
) -> UnitAssignment:
    """Assign units to workers; loads differ by at most one when no unit is delayed or moving."""
    wanted = sorted(set(units))
    ordered = sorted(workers, key=lambda worker: worker.member_id)
    before = max((worker.view for worker in ordered), key=lambda view: view.generation)
    shares: dict[str, list[str]] = {worker.member_id: [] for worker in ordered}
    taken = _kept(wanted, ordered, shares)
    waiting: dict[str, int] = {}
    free: list[str] = []
    by_name = {worker.name: worker.member_id for worker in reversed(ordered)}
    for unit in wanted:
        if unit in taken:
            continue
        name = before.placed.get(unit)
        if name in by_name:
            # The worker was restarted, or the unit is not running there yet.
            shares[by_name[name]].append(unit)
        elif name is not None and before.waited_ms.get(unit, 0) < delay_ms:
            waiting[unit] = before.waited_ms.get(unit, 0)
        else:
            free.append(unit)
    for unit in free:
        idlest = min(ordered, key=lambda worker: len(shares[worker.member_id]))
        shares[idlest.member_id].append(unit)
    moving = frozenset() if waiting else _excess(shares, taken)
    names = {worker.member_id: worker.name for worker in ordered}
    placed = {unit: names[member_id] for member_id, its in shares.items() for unit in its}
    placed |= {unit: before.placed[unit] for unit in waiting}
    return UnitAssignment(
        units={member_id: sorted(its) for member_id, its in shares.items()},
        moving=moving,
        view=PoolSnapshot(generation, placed, waiting),
        again_ms=delay_ms - max(waiting.values()) if waiting else None,
    )


def _kept(
    wanted: Iterable[str], workers: Iterable[PoolWorker], shares: Mapping[str, list[str]]
) -> frozenset[str]:
    """Keep each unit on the worker that runs it; on the first, if two workers claim it."""
    taken: set[str] = set()
    for worker in workers:
        its = sorted(worker.owned.intersection(wanted) - taken)
        shares[worker.member_id].extend(its)
        taken.update(its)
    return frozenset(taken)


def _excess(shares: Mapping[str, list[str]], owned: frozenset[str]) -> frozenset[str]:
    """Take the running units above its share from each worker."""
    total = sum(map(len, shares.values()))
    least, more = divmod(total, len(shares))
    moving: set[str] = set()
    busiest_first = sorted(shares, key=lambda member_id: (-len(shares[member_id]), member_id))
    for rank, member_id in enumerate(busiest_first):
        its = shares[member_id]
        surplus = len(its) - (least + (rank < more))
        gone = [unit for unit in reversed(its) if unit in owned][: max(surplus, 0)]
        moving.update(gone)
        its[:] = [unit for unit in its if unit not in moving]
    return frozenset(moving)
