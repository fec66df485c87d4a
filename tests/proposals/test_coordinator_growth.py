"""The work of each design's coordinator grows with the members, not with their square."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from partage.proposals.comparison.cell import CellRun, Workload
from partage.proposals.designs.catalog import DESIGNS
from partage.proposals.machine import Connection, ConnectionLost, Event, MessageReceived


class CallCounter:
    """A coordinator that counts the calls of functions while it handles events."""

    def __init__(self, coordinator: Any) -> None:
        self.calls = 0
        self.connections: set[Connection] = set()
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


def test_lost_connections_of_broker_side_restart_each_rebalance() -> None:
    """The document lets a rebalance fail if a consumer fails, and begins another one.

    So if all connections are lost, the requests grow with the square of the consumers.
    """
    counter = run_group("broker-side", 10)
    now_ms = 1_000_000
    requests = 0
    for connection in sorted(counter.connections):
        event = ConnectionLost(at_ms=now_ms, connection=connection)
        requests += len(counter.coordinator.handle(event).sends)
    assert requests == 9 * 10 // 2  # 9 StopFetcher requests, then 8, then 7 …
