"""A process with one member, in a `World`."""

from __future__ import annotations

from collections.abc import Callable

from partage.coordinator import events as asked
from partage.coordinator import replies
from partage.member import events, invariants, outcome
from partage.member.ownership import Ownership, RebalanceProtocol
from partage.member.settings import MemberSettings
from partage.member.states import MemberState
from partage.member.timers import Timer
from partage.member.turn import Turn
from partage.model.errors import ErrorCode
from partage.runtime.timers import Timers

from . import sharing, translating
from .translating import GROUP, SendCommit
from .world import Connection, World


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
                metadata_rebalance_delay_ms=draw.choice((0, 0, 1_000)),
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
            world.send(connection, action, translating.request(self, action, ticket))

    def hear_reply(self, action: outcome.Action, reply: replies.Reply) -> None:
        self.hear(translating.answer(action, reply, self.world.now_ms))

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
