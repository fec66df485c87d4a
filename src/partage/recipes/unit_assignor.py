"""The assignment of units to workers: a pure function, incremental as Kafka Connect's (KIP-415).

A worker keeps its running units unless it has more than its share, or the strategy of a connector
places them elsewhere. Then it stops some, which start on other workers in the next generation. The
units of a lost worker wait for its return for a while, so that a restart moves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from partage.recipes.connectors import Connector, PlaceTasks, TaskStrategy
from partage.recipes.task_placement import workers_by_task


class PoolSnapshot(msgspec.Struct, frozen=True):
    """The placement of units in a generation, and how long units have waited for a lost worker."""

    generation: int = -1
    placed: Mapping[str, str] = {}  # worker names by unit
    waited_ms: Mapping[str, int] = {}  # wait times of units whose worker is lost
    planned: Mapping[str, str] = {}  # names of the next workers of moving units
    deferrals: int = 0  # number of generations in a row that could not move a unit yet


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
    again_ms: int | None  # time until another rebalance is due for delayed or deferred units


class _Group(msgspec.Struct, frozen=True):
    """Units that one strategy places: all plain units, or the tasks of one connector."""

    units: Sequence[str]
    strategy: TaskStrategy


def assign_units(
    units: Iterable[str],
    workers: Sequence[PoolWorker],
    delay_ms: int,
    generation: int = 0,
    connectors: Sequence[Connector] = (),
) -> UnitAssignment:
    """Assign units to workers.

    When no unit is delayed or moving, the loads of plain units and connectors, and those of each
    balanced connector's tasks, differ by at most one. Within these limits the total loads are as
    even as single moves can make them.

    Args:
        units: The plain units.
        workers: All workers; at least one.
        delay_ms: Time for which units of a lost worker wait for its return.
        generation: The new generation.
        connectors: The connectors, which are distributed like plain units, and their tasks.

    Raises:
        ValueError: The strategy function of a connector returned an invalid placement.
    """
    groups = [_Group(sorted({*units, *(each.name for each in connectors)}), "balanced")]
    groups += [_Group(each.task_units, each.strategy) for each in connectors]
    ordered = sorted(workers, key=lambda worker: worker.member_id)
    before = max((worker.view for worker in ordered), key=lambda view: view.generation)
    placement = _Placement(ordered, groups)
    running = placement.keep_running()
    waiting: dict[str, int] = {}
    for group in groups:
        for unit in group.units:
            name = before.placed.get(unit)
            if unit in running or placement.place_on(unit, name or before.planned.get(unit)):
                continue  # It runs, or its worker was restarted or has not started it yet.
            if name is not None and before.waited_ms.get(unit, 0) < delay_ms:
                waiting[unit] = before.waited_ms.get(unit, 0)
    for group in groups:
        placement.place_free(group, waiting)
    now = dict(placement.holders)
    is_deferred = not waiting and placement.rebalance(running)
    target = placement.holders
    moving = frozenset(unit for unit in running if target[unit] != now[unit])
    current = {unit: member_id for unit, member_id in now.items() if unit not in moving}
    names = {worker.member_id: worker.name for worker in ordered}
    shares: dict[str, list[str]] = {worker.member_id: [] for worker in ordered}
    for unit, member_id in current.items():
        shares[member_id].append(unit)
    placed = {unit: names[member_id] for unit, member_id in current.items()}
    placed |= {unit: before.placed[unit] for unit in waiting}
    planned = {unit: names[target[unit]] for unit in sorted(moving)}
    deferrals = before.deferrals + 1 if is_deferred else 0
    again_ms = delay_ms - max(waiting.values()) if waiting else None
    return UnitAssignment(
        units={member_id: sorted(its) for member_id, its in shares.items()},
        moving=moving,
        view=PoolSnapshot(generation, placed, waiting, planned, deferrals),
        again_ms=_deferral_ms(deferrals) if is_deferred else again_ms,
    )


def _deferral_ms(deferrals: int) -> int:
    """Return the time until a deferred unit is tried again: at once, then with a growing delay.

    Kafka Connect also delays consecutive rebalances that revoke tasks (KAFKA-12495).
    """
    return 0 if deferrals == 1 else int(min(100 * 2 ** min(deferrals - 2, 20), 10_000))


class _Placement:
    """A placement of units on workers while it is computed; ``holders`` has member ids by unit."""

    def __init__(self, workers: Sequence[PoolWorker], groups: Sequence[_Group]) -> None:
        self._workers = workers
        self._ids = [worker.member_id for worker in workers]
        self._by_name = {worker.name: worker.member_id for worker in reversed(workers)}
        self._groups = groups
        self._group_of = {unit: group for group, each in enumerate(groups) for unit in each.units}
        self._counts = [dict.fromkeys(self._ids, 0) for _ in groups]
        self._totals = dict.fromkeys(self._ids, 0)
        self.holders: dict[str, str] = {}

    def keep_running(self) -> frozenset[str]:
        """Keep each unit on the worker that runs it; on the first, if two workers claim it."""
        for worker in self._workers:
            for unit in sorted(worker.owned):
                if unit in self._group_of and unit not in self.holders:
                    self._place(unit, worker.member_id)
        return frozenset(self.holders)

    def place_on(self, unit: str, name: str | None) -> bool:
        """Place a unit on the worker with a name; return False if there is none."""
        member_id = self._by_name.get(name) if name is not None else None
        if member_id is not None:
            self._place(unit, member_id)
        return member_id is not None

    def place_free(self, group: _Group, waiting: Mapping[str, int]) -> None:
        """Place the units of a group that have no worker and do not wait for one."""
        free = [each for each in group.units if each not in self.holders and each not in waiting]
        if free and callable(group.strategy):
            wanted = self._wanted(group.units, group.strategy)
            for unit in free:
                self._place(unit, wanted[unit])
        else:
            for unit in free:
                count = self._counts[self._group_of[unit]]
                self._place(unit, min(self._ids, key=lambda w: (count[w], self._totals[w])))

    def rebalance(self, running: frozenset[str]) -> bool:
        """Apply the strategy functions, balance each balanced group, then the total loads.

        Return True if a unit has to move that a worker may be starting now. Such a unit can move
        only after its worker has reported it.
        """
        is_deferred = False
        for number, group in enumerate(self._groups):
            if callable(group.strategy):
                for unit, member_id in self._wanted(group.units, group.strategy).items():
                    if unit in running:
                        self._place(unit, member_id)
                    elif self.holders[unit] != member_id:
                        is_deferred = True
            elif group.strategy == "balanced":
                while self._move_one([number], self._counts[number], running):
                    pass
        balanced = [n for n, group in enumerate(self._groups) if group.strategy == "balanced"]
        while self._move_one(balanced, self._totals, running):
            pass
        placed = self.holders.keys()
        return (
            is_deferred
            or any(self._find_move([n], self._counts[n], placed) for n in balanced)
            or self._find_move(balanced, self._totals, placed) is not None
        )

    def _move_one(
        self, groups: Sequence[int], loads: Mapping[str, int], running: frozenset[str]
    ) -> bool:
        """Move a running unit as `_find_move` says; return False if it finds none."""
        move = self._find_move(groups, loads, running)
        if move is not None:
            self._place(*move)
        return move is not None

    def _find_move(
        self, groups: Sequence[int], loads: Mapping[str, int], movable: Collection[str]
    ) -> tuple[str, str] | None:
        """Return a movable unit and its next worker, if the loads of two workers differ by two.

        A unit moves only to a worker that has fewer units of its group. So a total load is
        balanced without making a group uneven.
        """
        by_load = sorted(self._ids, key=lambda w: (loads[w], self._totals[w]))
        for giver in reversed(by_load):
            for taker in by_load:
                if loads[giver] - loads[taker] < 2:
                    break
                for number in groups:
                    if self._counts[number][giver] <= self._counts[number][taker]:
                        continue
                    for unit in reversed(self._groups[number].units):
                        if unit in movable and self.holders[unit] == giver:
                            return unit, taker
        return None

    def _wanted(self, units: Sequence[str], place: PlaceTasks) -> dict[str, str]:
        """Return the member ids by unit that a strategy function chooses."""
        workers = sorted(self._by_name)
        placed = workers_by_task(place(list(units), workers), units, workers)
        return {unit: self._by_name[name] for unit, name in placed.items()}

    def _place(self, unit: str, member_id: str) -> None:
        group = self._counts[self._group_of[unit]]
        if (before := self.holders.get(unit)) is not None:
            group[before] -= 1
            self._totals[before] -= 1
        group[member_id] += 1
        self._totals[member_id] += 1
        self.holders[unit] = member_id
