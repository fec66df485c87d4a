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

from partage.coordinator import events as asked
from partage.coordinator import replies
from partage.coordinator.records import GroupSaved, Record
from partage.coordinator.shard import Shard
from partage.member import events, invariants, outcome
from partage.member.member import Identity
from partage.member.ownership import Ownership, RebalanceProtocol
from partage.member.settings import MemberSettings
from partage.member.states import MemberState
from partage.member.timers import Timer
from partage.member.turn import Turn
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.runtime.driver import Driver
from partage.runtime.timers import Timers

from . import sharing

GROUP = "g"
Edge = tuple[MemberState, MemberState]


class SendCommit(outcome.Action, frozen=True, gc=False, kw_only=True):
    """OffsetCommit, which is the shell's to send."""

    identity: Identity
    partitions: tuple[events.Partition, ...]


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


class Node:
    """A process with one member: the shell around its core."""

    def __init__(
        self,
        world: World,
        name: str,
        topics: frozenset[str],
        instance_id: str | None = None,
    ) -> None:
        self.world = world
        self.name = name
        self.topics = topics
        self.is_alive = True
        self.is_asleep = False  # the process stands still: events wait
        self.postponed: list[Callable[[], None]] = []
        self.connection: Connection | None = None
        self.timers: Timers[Timer] = Timers()
        self.has_failed: ErrorCode | None = None
        self.calls: list[outcome.Tell] = []
        self.problems: list[outcome.Report] = []
        self.holds: frozenset[events.Partition] = frozenset()  # as of the last event
        self.zombie_since_ms: int | None = None  # delivers, though it was dropped
        self.listened: set[events.Partition] = set()  # as the listener has it
        draw = world.random
        self.is_patient = draw.random() < 0.9  # callbacks are quick
        self.core = Ownership(
            MemberSettings(
                group_id=GROUP,
                protocol_type="consumer",
                instance_id=instance_id,
                session_timeout_ms=draw.choice((6_000, 10_000)),
                heartbeat_interval_ms=draw.choice((500, 2_000)),
                rebalance_timeout_ms=draw.choice((4_000, 10_000)),
                request_timeout_ms=5_000,
                max_poll_interval_ms=draw.choice((8_000, 15_000, None)),
            ),
            draw.choice(list(RebalanceProtocol)),
        )
        self._watch_transitions()
        world.members.append(self)
        self.hear(events.Subscribed(at_ms=world.now_ms, topics=topics))
        self.poll()

    def _watch_transitions(self) -> None:
        membership, edges = self.core.membership, self.world.edges
        become = membership.become

        def watched(turn: Turn, state: MemberState) -> None:
            edges.add((membership.state, state))
            become(turn, state)

        membership.become = watched  # type: ignore[method-assign]

    # Events.

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        def when_awake() -> None:
            if self.is_asleep:
                self.postponed.append(call)
            elif self.is_alive:
                call()

        self.world.later(delay_ms, when_awake)

    def hear(self, event: events.Event) -> None:
        if not self.is_alive:
            return
        if self.is_asleep:
            self.postponed.append(lambda: self.hear(_now(event, self.world.now_ms)))
            return
        result = self.core.handle(event)
        for key, deadline_ms in result.timers:
            self.timers.set(key, deadline_ms)
            if deadline_ms is not None:
                self.later(max(deadline_ms - self.world.now_ms, 0), self.fire)
        invariants.check_ownership(self.core, self.timers.armed)
        holds = self.core.owned if self.core.membership.is_in_generation else frozenset()
        if holds != self.holds:
            self.holds = holds
            self.world.judge(self)
        for action in result.actions:
            self.do(action)

    def fire(self) -> None:
        for key in self.timers.due(self.world.now_ms):
            self.world.seen[f"{key} timer"] += 1
            self.hear(events.TimerFired(at_ms=self.world.now_ms, key=key))

    def poll(self) -> None:
        """The user's loop: poll, work, poll."""
        self.hear(events.Polled(at_ms=self.world.now_ms, is_waiting=True))
        draw = self.world.random

        def work() -> None:
            self.hear(events.Polled(at_ms=self.world.now_ms, is_waiting=False))
            is_slow = not self.world.is_calm and draw.random() < 0.02
            self.commit()
            self.later(16_000 if is_slow else draw.randint(1, 3_000), self.poll)

        self.later(draw.randint(1, 3_000), work)

    def commit(self) -> None:
        """Commit what is deliverable; a zombie does so too, until it knows."""
        identity = self.core.commits_as
        deliverable = self.core.deliverable
        self.expect_no_old_zombie(bool(deliverable))
        if identity is not None and deliverable and self.is_connected:
            self.send(SendCommit(identity=identity, partitions=tuple(sorted(deliverable))))

    def expect_no_old_zombie(self, delivers: bool) -> None:
        """Whoever was dropped finds out: from a heartbeat, or because there is no answer."""
        if not delivers or not self.world.is_zombie(self):
            self.zombie_since_ms = None
            return
        now_ms, settings = self.world.now_ms, self.core.membership.settings
        self.zombie_since_ms = self.zombie_since_ms or now_ms
        patience_ms = settings.rebalance_timeout_ms + settings.parked_lapse_ms
        assert now_ms - self.zombie_since_ms < patience_ms + settings.session_timeout_ms

    @property
    def is_connected(self) -> bool:
        return self.core.membership.link.coordinator is not None

    # Actions.

    def do(self, action: outcome.Action) -> None:
        world, now_ms = self.world, self.world.now_ms
        draw = world.random
        match action:
            case outcome.FindCoordinator(serial=serial):
                world.find(self, serial)
            case outcome.Disconnect():
                self.disconnect()
            case outcome.SendJoin() | outcome.SendSync() | outcome.SendHeartbeat():
                self.send(action)
            case outcome.SendLeave(is_parked=is_parked):
                if is_parked:
                    self.disconnect()
                    self.connection = Connection(self, -1)  # of its own, and never looked at again
                    world.connections.append(self.connection)
                self.send(action)
            case outcome.Describe(serial=serial, generation=generation, owned=owned):
                said = sharing.metadata(self.core.topics, owned, generation)
                protocols = (events.Protocol("sharing", said),)
                self.later(
                    draw.randint(0, 20),
                    lambda: self.hear(
                        events.Prepared(at_ms=world.now_ms, serial=serial, protocols=protocols)
                    ),
                )
            case outcome.Assign(serial=serial, generation=generation, members=members):
                world.assigned_of[generation] = dict(world.partition_counts)
                if not world.is_calm and draw.random() < 0.02:
                    failed = events.AssignFailed(at_ms=now_ms, serial=serial, reason="no idea")
                    self.later(draw.randint(0, 50), lambda: self.hear(_now(failed, world.now_ms)))
                    return
                shares = {
                    member_id: sharing.encode(given)
                    for member_id, given in world.assign(members, world.partition_counts).items()
                }
                self.later(
                    draw.randint(0, 50),
                    lambda: self.hear(
                        events.Assigned(at_ms=world.now_ms, serial=serial, assignments=shares)
                    ),
                )
            case outcome.Decode(serial=serial, assignment=assignment):
                given = sharing.decode(assignment)
                fits = {topic for topic, _ in given} <= self.topics
                self.later(
                    0,
                    lambda: self.hear(
                        events.Decoded(
                            at_ms=world.now_ms, serial=serial, partitions=given, fits=fits
                        )
                    ),
                )
            case outcome.Tell(serial=serial):
                self.listen(action)
                world.seen[f"told {action.call}"] += 1
                takes_ms = draw.randint(0, 30 if self.is_patient or world.is_calm else 12_000)
                self.later(
                    takes_ms,
                    lambda: self.hear(events.CallbackDone(at_ms=world.now_ms, serial=serial)),
                )
            case outcome.Fail(error=error):
                self.has_failed = error
                world.seen[f"failed {error.name}"] += 1
            case outcome.Report():
                self.problems.append(action)
                world.seen[f"{action.problem}"] += 1
            case outcome.Left():
                world.seen["left"] += 1
            case outcome.Watch():
                world.seen["skipped the assignment"] += 1
                made_of = world.assigned_of.get(self.core.membership.generation)
                if made_of != world.partition_counts:  # it changed while nobody led
                    self.later(0, self.notice_metadata)
            case _:
                raise AssertionError(action)

    def listen(self, told: outcome.Tell) -> None:
        """Revoked before assigned, nothing twice, and nothing that was not there."""
        self.calls.append(told)
        partitions = set(told.partitions)
        if told.call is outcome.Call.ASSIGNED:
            assert not partitions & self.listened, "assigned twice"
            self.listened |= partitions
        else:
            assert partitions, f"{told.call} for nothing"
            assert partitions <= self.listened, f"{told.call} without being assigned"
            self.listened -= partitions

    def disconnect(self) -> None:
        if self.connection is not None:
            self.world.close(self.connection)

    def send(self, action: outcome.Action) -> None:
        world = self.world
        connection = self.connection
        assert connection is not None
        ticket = asked.Ticket(next(world.counter))
        if connection.is_open:
            world.send(connection, action, self.request(action, ticket))

    def request(self, action: outcome.Action, ticket: asked.Ticket) -> asked.Request:
        now_ms = self.world.now_ms
        match action:
            case outcome.SendJoin():
                return asked.Join(
                    at_ms=now_ms,
                    reply_to=ticket,
                    group_id=GROUP,
                    member_id=action.member_id,
                    fresh_member_id=f"{self.name}-{next(self.world.counter)}",
                    instance_id=action.instance_id,
                    client_id=self.name,
                    client_host="/",
                    session_timeout_ms=action.session_timeout_ms,
                    rebalance_timeout_ms=action.rebalance_timeout_ms,
                    protocol_type=action.protocol_type,
                    protocols=tuple(asked.Protocol(p.name, p.metadata) for p in action.protocols),
                    reason=action.reason,
                )
            case outcome.SendSync():
                return asked.Sync(
                    at_ms=now_ms,
                    reply_to=ticket,
                    group_id=GROUP,
                    generation=action.generation,
                    member_id=action.member_id,
                    instance_id=action.instance_id,
                    protocol_type=action.protocol_type,
                    protocol=action.protocol,
                    assignments=action.assignments,
                    assignment_error=action.assignment_error,
                )
            case outcome.SendHeartbeat():
                return asked.Heartbeat(
                    at_ms=now_ms,
                    reply_to=ticket,
                    group_id=GROUP,
                    generation=action.generation,
                    member_id=action.member_id,
                    instance_id=action.instance_id,
                )
            case outcome.SendLeave():
                leaver = asked.Leaver(
                    member_id=action.member_id,
                    instance_id=action.instance_id,
                    reason=action.reason,
                )
                return asked.Leave(at_ms=now_ms, reply_to=ticket, group_id=GROUP, leavers=(leaver,))
            case SendCommit(identity=identity, partitions=partitions):
                return asked.Commit(
                    at_ms=now_ms,
                    reply_to=ticket,
                    group_id=GROUP,
                    generation=identity.generation,
                    member_id=identity.member_id,
                    instance_id=identity.instance_id,
                    offsets=tuple(
                        asked.OffsetToCommit(topic=topic, partition=number, offset=now_ms)
                        for topic, number in partitions
                    ),
                )
        raise AssertionError(action)

    def hear_reply(self, action: outcome.Action, reply: replies.Reply) -> None:
        at_ms = self.world.now_ms
        match action, reply:
            case outcome.SendJoin(serial=serial), replies.JoinReply():
                members = tuple(
                    events.GroupMember(
                        member_id=m.member_id, instance_id=m.instance_id, metadata=m.metadata
                    )
                    for m in reply.members
                )
                answer: events.Event = events.JoinAnswered(
                    at_ms=at_ms,
                    serial=serial,
                    error=reply.error,
                    member_id=reply.member_id,
                    generation=reply.generation,
                    protocol_type=reply.protocol_type,
                    protocol=reply.protocol,
                    leader=reply.leader,
                    skip_assignment=reply.skip_assignment,
                    members=members,
                )
            case outcome.SendSync(serial=serial), replies.SyncReply():
                answer = events.SyncAnswered(
                    at_ms=at_ms,
                    serial=serial,
                    error=reply.error,
                    protocol_type=reply.protocol_type,
                    protocol=reply.protocol,
                    assignment=reply.assignment,
                    assignment_error=reply.assignment_error,
                )
            case outcome.SendHeartbeat(serial=serial), replies.HeartbeatReply(error=error):
                answer = events.HeartbeatAnswered(at_ms=at_ms, serial=serial, error=error)
            case outcome.SendLeave(serial=serial), replies.LeaveReply():
                error = reply.error or reply.errors[0]
                answer = events.LeaveAnswered(at_ms=at_ms, serial=serial, error=error)
            case SendCommit(identity=identity), replies.CommitReply(errors=errors):
                answer = events.CommitAnswered(
                    at_ms=at_ms,
                    generation=identity.generation,
                    member_id=identity.member_id,
                    error=errors[0],
                )
            case _:
                raise AssertionError((action, reply))
        self.hear(answer)

    # What happens to it.

    def crash(self) -> None:
        self.is_alive = False
        self.world.members.remove(self)
        self.disconnect()

    def sleep(self, ms: int) -> None:
        """The process stands still: whatever comes waits."""
        self.is_asleep = True
        self.world.later(ms, self.wake)

    def wake(self) -> None:
        self.is_asleep = False
        postponed, self.postponed = self.postponed, []
        # Before anything is delivered, poll is told the time.
        if self.is_alive:
            self.hear(events.Polled(at_ms=self.world.now_ms, is_waiting=True))
        for call in postponed:
            if self.is_alive:
                call()

    def notice_metadata(self) -> None:
        self.hear(events.MetadataChanged(at_ms=self.world.now_ms, reason="partitions"))

    def subscribe(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self.hear(events.Subscribed(at_ms=self.world.now_ms, topics=topics))

    def leave(self) -> None:
        self.hear(events.Leave(at_ms=self.world.now_ms, reason="enough"))


def _now(event: events.Event, at_ms: int) -> events.Event:
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    return type(event)(**{**fields, "at_ms": at_ms})
