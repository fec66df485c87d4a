"""A coordinator's core and many members' cores, joined by a wire that is not to be trusted.

Everything happens on one virtual clock, drawn from one seed. Events are translated by hand, with
no bytes in between: requests of a connection arrive in order and are served one after the other,
answers come back in order, and a connection that breaks loses whatever is on it.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from partage.coordinator import events as asked
from partage.coordinator import replies
from partage.coordinator.records import GroupSaved, Record
from partage.coordinator.shard import Shard
from partage.member import events, outcome
from partage.member.states import MemberState
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.runtime.driver import Driver

from . import sharing
from .translating import GROUP, SendCommit

if TYPE_CHECKING:
    from .node import Node

Edge = tuple[MemberState, MemberState]


@dataclass(eq=False)
class Connection:
    """One member's connection: what is asked waits for the answer to what was asked before."""

    member: Node
    serial: int  # of the FindCoordinator that led to it
    is_open: bool = True
    waiting: list[tuple[outcome.Action, asked.Request]] = field(default_factory=list)
    served: outcome.Action | None = None
    arrives_ms: int = 0  # the last request
    returns_ms: int = 0  # the last answer


class World:
    """All of it. ``swarm`` says which faults there are and how often."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 1_000_000
        self.counter = count(1)
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.settings = GroupSettings(initial_rebalance_delay_ms=self.random.choice((0, 500, 3000)))
        self.delay_max_ms = self.random.choice((2, 50, 400))
        self.partition_counts = {"t": self.random.randint(1, 12), "u": self.random.randint(1, 6)}
        self.assign = self.random.choice((sharing.assign, sharing.by_cooperative_sticky))
        self.log: list[Record] = []
        self.driver: Driver | None = None
        self.connections: list[Connection] = []
        self.tickets: dict[object, Connection] = {}
        self.members: list[Node] = []
        self.is_calm = False
        self.seen: Counter[str] = Counter()
        self.edges: set[Edge] = set()
        self.generations: dict[int, GroupSaved] = {}
        self.assigned_of: dict[int, dict[str, int]] = {}  # partition counts, by generation
        self.joined: set[str] = set()  # who has asked to since the last generation began
        self.missed: dict[int, set[str]] = {}  # static members that a generation has without
        self.syncs: dict[tuple[int, str], bytes] = {}
        self.start_coordinator()

    # The clock.

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        heapq.heappush(self.queue, (self.now_ms + delay_ms, next(self.counter), call))

    def delay(self) -> int:
        is_slow = not self.is_calm and self.random.random() < 0.01
        return self.random.randint(0, 3_000 if is_slow else self.delay_max_ms)

    def run(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        while self.queue and self.queue[0][0] <= until_ms:
            at_ms, _, call = heapq.heappop(self.queue)
            self.now_ms = max(self.now_ms, at_ms)
            call()
        self.now_ms = until_ms

    # The coordinator.

    def start_coordinator(self) -> None:
        driver = self.driver = Driver()
        self.later(self.delay(), lambda: self.load(driver))

    def load(self, driver: Driver) -> None:
        if driver is not self.driver:
            return
        shard = Shard(self.settings, lambda metadata: None)
        for record in self.log:
            shard.apply(record)
        driver.activate(shard, self.now_ms)
        self.settle()

    def crash_coordinator(self) -> None:
        """What was answered is in the log; whoever is connected hears of it sooner or later."""
        self.seen["coordinator crashed"] += 1
        self.driver = None
        for connection in list(self.connections):
            self.cut(connection)
        self.later(self.random.choice((10, 500, 5_000, 12_000)), self.start_coordinator)

    def settle(self) -> None:
        """The log is always durable at once; a crash comes before it, or after the answers."""
        driver = self.driver
        assert driver is not None
        while driver.unsent or driver.ready:
            records, mark = driver.take_unsent()
            self.log += records
            for record in records:
                if isinstance(record, GroupSaved):
                    self.stored(record)
            driver.durable(mark)
            for ticket, reply in driver.take_ready(1000):
                connection = self.tickets.pop(ticket, None)
                if connection is not None:
                    self.answer(connection, reply)
        driver.take_notices()
        wake_ms = driver.timers.wake_at_ms()
        if wake_ms is not None:
            self.later(max(wake_ms - self.now_ms, 0), lambda: self.fire(driver))

    def fire(self, driver: Driver) -> None:
        due = driver.timers.wake_at_ms()
        if driver is self.driver and due is not None and due <= self.now_ms:
            driver.fire_due(self.now_ms)
            self.settle()

    def stored(self, saved: GroupSaved) -> None:
        """S1, S3, S6 and S7 of what the coordinator makes of the members' doings."""
        before = self.generations.get(saved.generation)
        if before is None:
            assert saved.generation > max(self.generations, default=0), "S3: generations grow"
            self.seen["rebalances"] += 1
            missed = {m.member_id for m in saved.members} - self.joined
            if missed:
                self.missed[saved.generation] = missed
            self.joined.clear()
        self.generations[saved.generation] = saved
        ids = [m.member_id for m in saved.members]
        assert not ids or saved.leader in ids, "S7: the leader is a member"
        static = [m.instance_id for m in saved.members if m.instance_id is not None]
        assert len(static) == len(set(static)), "S6: one member an instance id"
        if not saved.awaiting_sync:
            given = [p for m in saved.members for p in sharing.decode(m.assignment)]
            assert len(given) == len(set(given)), "S1: no partition twice"

    @property
    def member_ids(self) -> dict[str, str | None]:
        """The members in the coordinator's eyes; of one that is away, in its log's."""
        shard = self.driver.shard if self.driver is not None else None
        if shard is not None:
            group = shard.groups.get(GROUP)
            return {} if group is None else dict.fromkeys(group.members)
        last = next((r for r in reversed(self.log) if isinstance(r, GroupSaved)), None)
        return {} if last is None else {m.member_id: None for m in last.members}

    # The wire.

    def find(self, node: Node, serial: int) -> None:
        def answer() -> None:
            if self.driver is None:
                node.hear(events.CoordinatorNotFound(at_ms=self.now_ms, serial=serial))
                return
            connection = Connection(node, serial)
            self.connections.append(connection)
            node.connection = connection
            node.hear(events.CoordinatorFound(at_ms=self.now_ms, serial=serial))

        node.later(self.delay() + 1, answer)

    def cut(self, connection: Connection, silently: bool = False) -> None:
        """The connection is gone, with all that is on it; its member is told later, or never."""
        if not connection.is_open:
            return
        self.close(connection)
        if silently:
            return
        node = connection.member
        lost = connection.serial
        node.later(
            self.delay(),
            lambda: node.hear(events.CoordinatorLost(at_ms=self.now_ms, serial=lost)),
        )

    def close(self, connection: Connection) -> None:
        connection.is_open = False
        if connection in self.connections:
            self.connections.remove(connection)

    def send(self, connection: Connection, action: outcome.Action, request: asked.Request) -> None:
        connection.arrives_ms = max(connection.arrives_ms, self.now_ms + self.delay())

        def arrive() -> None:
            if connection.is_open:
                connection.waiting.append((action, request))
                self.serve(connection)

        self.later(connection.arrives_ms - self.now_ms, arrive)

    def serve(self, connection: Connection) -> None:
        if connection.served is None and connection.waiting and self.driver is not None:
            connection.served, request = connection.waiting.pop(0)
            request = _at(request, self.now_ms)
            self.tickets[request.reply_to] = connection
            if isinstance(request, asked.Join):
                self.joined |= {request.member_id, request.fresh_member_id}
            self.driver.handle(request)
            self.settle()

    def answer(self, connection: Connection, reply: replies.Reply) -> None:
        action, connection.served = connection.served, None
        assert action is not None
        if isinstance(reply, replies.SyncReply) and reply.error is ErrorCode.NONE:
            assert isinstance(action, outcome.SendSync)
            key = action.generation, action.member_id
            known = self.syncs.setdefault(key, reply.assignment)
            assert known == reply.assignment, "S4: one assignment a member and generation"
        if isinstance(reply, replies.JoinReply) and reply.error is ErrorCode.NONE:
            self.joined.discard(reply.member_id)
        if isinstance(action, SendCommit):
            assert isinstance(reply, replies.CommitReply)
            self.committed(action, reply.errors[0])
        connection.returns_ms = max(connection.returns_ms, self.now_ms + self.delay())

        def return_() -> None:
            if connection.is_open:
                connection.member.hear_reply(action, reply)

        self.later(connection.returns_ms - self.now_ms, return_)
        self.later(0, lambda: self.serve(connection))

    # Judging.

    def judge(self, node: Node) -> None:
        """S2 and S8, whenever a member has come to hold something else.

        What a member of the group holds nobody else does. A zombie, which has not heard yet that
        it was dropped, may hold on to what is somebody else's by now; its commits are refused.
        """
        for other in self.members:
            if other is node or not other.holds & node.holds:
                continue
            self.seen["zombies"] += 1
            assert self.is_zombie(node) or self.is_zombie(other), (
                f"{sorted(node.holds & other.holds)} is held by {node.name} and {other.name}, in "
                f"{node.core.membership.generation} and {other.core.membership.generation}"
            )

    def is_zombie(self, node: Node) -> bool:
        """Whether the group has gone on without it: dropped it, or kept only its place."""
        membership = node.core.membership
        member_id, own = membership.member_id, membership.generation
        if member_id not in self.member_ids:
            return True
        return any(g > own and member_id in missed for g, missed in self.missed.items())

    def committed(self, send: SendCommit, error: ErrorCode) -> None:
        """S5, and that a commit is accepted only of what its sender owned."""
        self.seen[f"commit {error.name}"] += 1
        if error is ErrorCode.NONE:
            assert self.driver is not None
            assert self.driver.shard is not None
            group = self.driver.shard.groups[GROUP]
            assert send.identity.generation == group.saved.generation, "S5: stale generation"
            assert send.identity.member_id in group.members, "S5: stranger"


def _at(request: asked.Request, at_ms: int) -> asked.Request:
    fields = {name: getattr(request, name) for name in request.__struct_fields__}
    return type(request)(**{**fields, "at_ms": at_ms})
