"""The placement of tasks by strategy functions, and the detection of inconsistent functions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from types import CellType
from typing import NamedTuple

import msgspec

from partage.recipes.connectors import Connector, PlaceTasks

log = logging.getLogger(__name__)


def workers_by_task(
    placement: Mapping[str, Iterable[str]], tasks: Sequence[str], workers: Sequence[str]
) -> dict[str, str]:
    """Return the worker of each task in a placement that a strategy function returned.

    Raises:
        ValueError: The placement names an unknown worker or task, or does not place each task once.
    """
    placed: dict[str, str] = {}
    known = frozenset(tasks)
    for worker, its in placement.items():
        if worker not in workers:
            raise ValueError(f"a strategy placed tasks on {worker!r}, which is no worker")
        for task in its:
            if task in placed or task not in known:
                raise ValueError(f"a strategy placed {task!r} twice, or it is no task")
            placed[task] = worker
    if missing := [task for task in tasks if task not in placed]:
        raise ValueError(f"a strategy placed no worker for {', '.join(missing)}")
    return placed


class _StrategyCall(NamedTuple):
    """A call of a strategy function: its arguments, and the workers by task that it chose."""

    function: PlaceTasks
    tasks: tuple[str, ...]
    workers: tuple[str, ...]
    placed: Mapping[str, str]


class PlacementMemory:
    """The last call of each strategy function, to detect a function that is not deterministic.

    Such a function would move running tasks in every generation. Instead, its first placement for
    the same arguments is kept, and an error is logged once. Another function for the same connector
    is a changed strategy, and its placement applies.
    """

    def __init__(self) -> None:
        self._last: dict[str, _StrategyCall] = {}
        self._reported: set[str] = set()

    def guard(self, connector: Connector) -> Connector:
        """Return the connector with a strategy function that is compared with its last call."""
        place = connector.strategy
        if not callable(place):
            return connector
        function: PlaceTasks = place

        def place_consistently(
            tasks: Sequence[str], workers: Sequence[str]
        ) -> dict[str, list[str]]:
            placed = self._placed(connector.name, function, tasks, workers)
            by_worker: dict[str, list[str]] = {}
            for task in tasks:
                by_worker.setdefault(placed[task], []).append(task)
            return by_worker

        return msgspec.structs.replace(connector, strategy=place_consistently)

    def _placed(
        self, name: str, place: PlaceTasks, tasks: Sequence[str], workers: Sequence[str]
    ) -> Mapping[str, str]:
        """Call a strategy function; return its earlier result if the arguments are the same."""
        try:
            placed = workers_by_task(place(list(tasks), list(workers)), tasks, workers)
        except ValueError as error:
            raise ValueError(f"connector {name!r}: {error}") from error
        call = _StrategyCall(place, tuple(tasks), tuple(workers), placed)
        last = self._last.get(name)
        if last is None or not _has_same_input(call, last):
            self._last[name] = call
            return placed
        if placed != last.placed and name not in self._reported:
            self._reported.add(name)
            log.error(
                "the strategy of connector %r returned different placements for the same tasks and "
                "workers; the first placement is kept. A strategy must depend on its arguments "
                "only: tasks=%d workers=%d",
                name,
                len(tasks),
                len(workers),
            )
        return last.placed


def _has_same_input(one: _StrategyCall, other: _StrategyCall) -> bool:
    """True if the same function was called with the same arguments."""
    if (one.tasks, one.workers) != (other.tasks, other.workers):
        return False
    return one.function == other.function or _code(one.function) == _code(other.function)


def _code(function: PlaceTasks) -> tuple[object, ...]:
    """Return what identifies a lambda or an inner function that is created again for each call."""
    code = getattr(function, "__code__", function)
    cells = getattr(function, "__closure__", None) or ()
    defaults = getattr(function, "__defaults__", None) or ()
    return code, *map(_content_id, cells), *map(id, defaults)


def _content_id(cell: CellType) -> int | None:
    """Return the identity of a captured variable; None if the variable has no value yet."""
    try:
        return id(cell.cell_contents)
    except ValueError:
        return None
