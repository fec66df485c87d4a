"""The cost of a member's request does not depend on the size of its group.

The cost is the number of executed lines of the coordinator and the driver, and of members visited
in loops, not time. Twice the members may cost about twice as much in total.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from partage.coordinator.events import Heartbeat, Join, Leave, LeavingMember, Protocol, Sync, Ticket
from partage.coordinator.shard import Shard
from partage.coordinator.states import GroupState
from partage.model.settings import GroupSettings
from partage.runtime.driver import Driver

FEW = 300
MANY = 2 * FEW
GROWTH_MAX = 2.1


class CountingDict(OrderedDict[str, Any]):
    """A dictionary of members that counts the members visited in loops."""

    looked_at = 0

    def __iter__(self) -> Iterator[str]:
        for key in super().__iter__():
            CountingDict.looked_at += 1
            yield key

    def values(self) -> Any:
        return (self[key] for key in self)

    def items(self) -> Any:
        return ((key, self[key]) for key in self)

    def keys(self) -> Any:
        return list(self)


@contextmanager
def counting(costs: Counter[str], phase: str) -> Iterator[None]:
    """Add the cost of the block to ``costs``."""
    lines = 0

    def trace(frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        nonlocal lines
        if "partage" not in frame.f_code.co_filename:
            return None
        if event == "line":
            lines += 1
        return trace

    CountingDict.looked_at = 0
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
        costs[phase] += lines + CountingDict.looked_at


class LargeGroup:
    """Members of one group that all send the same requests, one after the other."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.costs: Counter[str] = Counter()
        self.now_ms = 1_000_000
        self.driver = Driver()
        self.driver.activate(Shard(GroupSettings(), lambda metadata: frozenset()), self.now_ms)
        self.tickets = 0

    @property
    def group(self) -> Any:
        assert self.driver.shard is not None
        return self.driver.shard.groups["g"]

    def words(self) -> dict[str, Any]:
        self.tickets += 1
        return {
            "at_ms": self.now_ms,
            "reply_to": Ticket(self.tickets),
            "group_id": "g",
        }

    def handle(self, phase: str, events: list[Any]) -> None:
        """Handle one event of each member, and its outcome."""
        with counting(self.costs, phase):
            for event in events:
                self.driver.handle(event)
                self.settle()

    def settle(self) -> None:
        _, mark, _ = self.driver.pop_unsent()
        self.driver.on_durable(mark)
        self.driver.pop_ready(1_000_000)
        self.driver.pop_group_events()

    def tick(self, phase: str, ms: int) -> None:
        self.now_ms += ms
        with counting(self.costs, phase):
            self.driver.fire_due(self.now_ms)
            self.settle()

    def joins(self, member_id: str = "", metadata: bytes = b"") -> list[Any]:
        return [
            Join(
                **self.words(),
                member_id=member_id.format(n),
                generated_member_id=f"m{n}",
                client_id="c",
                client_host="/",
                session_timeout_ms=20_000,
                rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=(Protocol("range", metadata), Protocol("sticky", metadata)),
            )
            for n in range(self.count)
        ]

    def syncs(self) -> list[Any]:
        """Return the SyncGroups; the one of the leader, m0, is the last."""
        everybody = {f"m{n}": b"x" for n in range(self.count)}
        return [
            Sync(
                **self.words(),
                generation=self.group.generation,
                member_id=f"m{n}",
                assignments={} if n else everybody,
            )
            for n in reversed(range(self.count))
        ]

    def beats(self) -> list[Any]:
        generation = self.group.generation
        return [
            Heartbeat(**self.words(), generation=generation, member_id=f"m{n}")
            for n in range(self.count)
        ]

    def leaves(self) -> list[Any]:
        return [
            Leave(**self.words(), members=(LeavingMember(member_id=f"m{n}"),))
            for n in range(self.count)
        ]

    def live(self) -> Counter[str]:
        """Run a group's life: it forms, rebalances, and is removed."""
        self.handle("are given ids", self.joins())
        self.group.members = CountingDict()
        self.handle("join a new group", self.joins("m{}"))
        self.tick("wait for others", 3_000)
        self.tick("begin the first generation", 3_000)
        assert self.group.state is GroupState.COMPLETING_REBALANCE
        self.handle("ask for the generation again", self.joins("m{}"))
        self.handle("sync", self.syncs())
        assert self.group.state is GroupState.STABLE
        self.handle("heartbeat", self.beats())
        self.handle("change", self.joins("m{}", b"changed"))
        assert self.group.generation == 2
        self.handle("sync again", self.syncs())
        self.handle("leave", self.leaves())
        assert self.group.state is GroupState.EMPTY
        self.handle("are given ids again", self.joins())
        self.handle("join an empty group", self.joins("m{}"))
        self.tick("wait again", 3_000)
        self.tick("begin a generation", 3_000)
        self.tick("all expire", 20_000)
        assert self.group.state is GroupState.EMPTY
        return self.costs


@pytest.fixture(scope="module")
def costs() -> tuple[Counter[str], Counter[str]]:
    return LargeGroup(FEW).live(), LargeGroup(MANY).live()


def test_request_cost_independent_of_group_size(costs: tuple[Counter[str], Counter[str]]) -> None:
    few, many = costs
    growth = {phase: many[phase] / few[phase] for phase in few if few[phase] > FEW}
    assert {phase: times for phase, times in growth.items() if times > GROWTH_MAX} == {}
    assert len(growth) >= 12
