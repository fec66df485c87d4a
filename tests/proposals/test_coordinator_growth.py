"""The work of each design's coordinator grows with the members, not with their square."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from partage.proposals.comparison.cell import CellRun, Workload
from partage.proposals.designs.catalog import DESIGNS
from partage.proposals.machine import ConnectionId, ConnectionLost, Event, MessageReceived


class CallCounter:
    """A coordinator that counts the calls of functions while it handles events."""

    def __init__(self, coordinator: Any) -> None:
        self.calls = 0
        self.connections: set[ConnectionId] = set()
        self.coordinator = coordinator

    def handle(self, event: Event) -> Any:
        if isinstance(event, MessageReceived):
            self.connections.add(event.connection)
        before = sys.getprofile()
        sys.setprofile(self._count)
        try:
            return self.coordinator.handle(event)
        finally:
            sys.setprofile(before)

    def apply(self, record: Any) -> None:
        self.coordinator.apply(record)

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        self.calls += event in ("call", "c_call")


def run_group(design: str, members: int) -> CallCounter:
    """Return the counter of a coordinator whose group has formed, and lost and won a member."""
    run = CellRun(Workload(design=design, members=members), lambda: 0)
    process = run.world.coordinator
    assert process is not None
    counter = CallCounter(process.machine)
    process.machine = counter
    for disturb in (lambda: run.start_members(members), run.crash, run.join):
        disturb()
        assert run.world.run_until_settled(200_000)
    return counter


@pytest.mark.parametrize("design", list(DESIGNS))
def test_calls_of_a_coordinator_grow_linearly(design: str) -> None:
    small, large = (run_group(design, members).calls for members in (20, 40))
    assert large / small < 2.2


def lose_all_connections(design: str, members: int) -> tuple[int, int]:
    """Return the calls and requests of a coordinator that loses all connections at once."""
    counter = run_group(design, members)
    before, requests = counter.calls, 0
    for connection in sorted(counter.connections):
        event = ConnectionLost(at_ms=1_000_000, connection=connection)
        requests += len(counter.handle(event).sends)
    return counter.calls - before, requests


@pytest.mark.parametrize("design", ["broker-side", "broker-side-closing"])
def test_loss_of_all_connections_costs_linear_work(design: str) -> None:
    (small_calls, small), (large_calls, large) = (
        lose_all_connections(design, members) for members in (20, 40)
    )
    assert (small, large) == ((19, 39) if design == "broker-side" else (0, 0))
    assert large_calls / small_calls < 2.2
