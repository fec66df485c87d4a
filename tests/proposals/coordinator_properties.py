"""State machines for Hypothesis: any order of requests, timers and losses at a coordinator.

Hypothesis leaves some rules out of each example and repeats values. So its examples alone rarely
get beyond the first rebalance. Each one begins with a random walk.
"""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from partage.proposals import machine
from partage.proposals.designs.checked import CheckedCoordinator
from partage.proposals.join_group.checker import Dialect
from partage.proposals.join_group.settings import CoordinatorSettings
from partage.proposals.machine import ConnectionId
from partage.proposals.multi_assignor.coordinator import MultiAssignorCoordinator
from partage.proposals.multi_assignor.invariants import MultiAssignorDialect
from partage.proposals.multi_assignor.messages import JoinGroupProtocol
from partage.proposals.multi_assignor.messages import JoinGroupRequest as MultiJoin
from partage.proposals.multi_assignor.messages import JoinGroupResponse as MultiJoined
from partage.proposals.single_assignor.coordinator import (
    SingleAssignorCoordinator,
    SynchronizerChoice,
    TimeoutReaction,
)
from partage.proposals.single_assignor.invariants import SingleAssignorDialect
from partage.proposals.single_assignor.messages import JoinGroupRequest as SingleJoin
from partage.proposals.single_assignor.messages import JoinGroupResponse as SingleJoined
from partage.proposals.single_assignor.messages import JoinPhase, SyncedMember, Synchronized
from partage.wire.apis.heartbeat import HeartbeatRequest
from partage.wire.apis.leave_group import LeaveGroupRequest
from partage.wire.apis.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from partage.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchTopic
from partage.wire.types import Message

SETTINGS = CoordinatorSettings(
    session_timeout_max_ms=30_000, initial_rebalance_delay_ms=1_000, synchronize_timeout_ms=4_000
)
SESSIONS_MS = (6_000, 9_000, 20_000)
clients = st.integers(0, 3)
#: Usually the right id and generation.
claims = st.sampled_from(("right",) * 6 + ("none", "other", "strange", "stale"))
groups = st.sampled_from(("g", "g", "g", "h"))
#: The steps before an example, and the seed of their random draws.
walk_seeds = st.integers(0, 2**32 - 1)
walk_lengths = st.sampled_from((0, 20, 60))


class CoordinatorMachine(RuleBasedStateMachine):
    """A checked coordinator, its clock and its connections."""

    coordinator: CheckedCoordinator

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.connections = 0
        self.draws = 0
        self.records: list[Any] = []

    def handle(self, event: machine.Event) -> None:
        outcome = self.coordinator.handle(event)
        self.records += outcome.records
        for connection, message in outcome.sends:
            self.hear(connection, message)
        for connection in outcome.closes:
            self.on_close(connection)

    def hear(self, connection: int, message: Message) -> None:
        raise NotImplementedError  # no ABC: the metaclass of Hypothesis

    def on_close(self, connection: int) -> None:
        raise NotImplementedError  # no ABC: the metaclass of Hypothesis

    def new_connection(self) -> int:
        self.connections += 1
        return self.connections

    def send(self, connection: int, message: Message) -> None:
        self.draws += 1
        self.handle(
            machine.MessageReceived(
                at_ms=self.now_ms,
                connection=ConnectionId(connection),
                message=message,
                draw=self.draws,
            )
        )

    def close(self, connection: int) -> None:
        self.handle(machine.ConnectionLost(at_ms=self.now_ms, connection=ConnectionId(connection)))

    @rule(for_ms=st.sampled_from((100, 1_000, 3_000, 7_000, 25_000)))
    def tick(self, for_ms: int) -> None:
        end_ms = self.now_ms + for_ms
        while True:
            due = [(at_ms, str(key), key) for key, at_ms in self.coordinator.armed.items()]
            at_ms, _, key = min(due, default=(end_ms + 1, "", None), key=lambda each: each[:2])
            if at_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, at_ms)
            self.draws += 1
            self.handle(machine.TimerFired(at_ms=self.now_ms, key=key, draw=self.draws))
        self.now_ms = end_ms

    def walk(self, seed: int, steps: int) -> None:
        """Take random steps before those of Hypothesis."""
        rng = Random(seed)
        for _ in range(steps):
            self.take_step(rng)

    def take_step(self, rng: Random) -> None:
        """Take one random step."""
        raise NotImplementedError  # no ABC: the metaclass of Hypothesis

    @rule(for_ms=st.sampled_from((200, 2_500)))
    def stall(self, for_ms: int) -> None:
        """Stop the process: the next event comes late, before or after the timers."""
        self.now_ms += for_ms


class Client:
    """A client of a design with JoinGroup, with what it knows of each group."""

    def __init__(self) -> None:
        self.connection = 0
        self.abandoned: list[int] = []  # connections with a parked request
        self.is_waiting = False
        self.group_id = "g"
        self.ids: dict[str, list[str]] = {}
        self.generations: dict[str, list[int]] = {}
        self.asked: dict[str, tuple[str, ...]] = {}  # members to assign, by group


class JoinGroupMachine(CoordinatorMachine):
    """Four clients and two groups of a design with JoinGroup."""

    dialect: Dialect

    def __init__(self) -> None:
        super().__init__()
        self.clients = [Client() for _ in range(4)]

    def ask(self, client: Client, group_id: str, message: Message) -> None:
        """Send a request, over a new connection if a request waits on the current one."""
        if client.is_waiting or not client.connection:
            if client.connection:
                client.abandoned.append(client.connection)
            client.connection = self.new_connection()
        client.is_waiting, client.group_id = True, group_id
        self.send(client.connection, message)

    def hear(self, connection: int, message: Message) -> None:
        for client in self.clients:
            if client.connection == connection:
                client.is_waiting = False
                self.learn(client, message)

    def learn(self, client: Client, message: Message) -> None:
        if not isinstance(message, self.join_response):
            return
        response = self.dialect.response(message)
        if response.member_id:
            client.ids.setdefault(client.group_id, []).append(response.member_id)
        if not response.error:
            client.generations.setdefault(client.group_id, []).append(response.generation)
            if response.members is not None:
                client.asked[client.group_id] = tuple(response.members)

    join_response: type[Message]

    def on_close(self, connection: int) -> None:
        raise AssertionError("these coordinators close no connections")

    def identity(self, client: Client, group_id: str, claim: str) -> tuple[str, int]:
        ids, generations = client.ids.get(group_id, [""]), client.generations.get(group_id, [-1])
        match claim:
            case "none":
                return "", generations[-1]
            case "other":
                known = [
                    each.ids[group_id][-1]
                    for each in self.clients
                    if each is not client and group_id in each.ids
                ]
                return (known or [""])[0], generations[-1]
            case "strange":
                return "nobody", generations[-1]
            case "stale":
                return ids[-1], generations[0] if len(generations) > 1 else generations[-1] + 1
        return ids[-1], generations[-1]

    @rule(
        who=clients,
        group_id=st.sampled_from(("g", "g", "g", "h", "")),
        claim=claims,
        session=st.sampled_from((5_999, *SESSIONS_MS, *SESSIONS_MS, 30_000, 30_001)),
        version=st.integers(-1, 2),
        kind=st.sampled_from(("consumer",) * 6 + ("connect", "")),
    )
    def join(
        self, who: int, group_id: str, claim: str, session: int, version: int, kind: str
    ) -> None:
        client = self.clients[who]
        member_id, _ = self.identity(client, group_id, claim)
        self.ask(client, group_id, self.join_request(group_id, member_id, session, version, kind))

    def join_request(
        self, group_id: str, member_id: str, session_ms: int, version: int, kind: str
    ) -> Message:
        raise NotImplementedError  # no ABC: the metaclass of Hypothesis

    @rule(who=clients, group_id=groups, claim=claims)
    def heartbeat(self, who: int, group_id: str, claim: str) -> None:
        member_id, generation = self.identity(self.clients[who], group_id, claim)
        self.ask(
            self.clients[who],
            group_id,
            HeartbeatRequest(group_id=group_id, generation_id=generation, member_id=member_id),
        )

    @rule(who=clients, group_id=groups, claim=claims, offset=st.integers(0, 9))
    def commit(self, who: int, group_id: str, claim: str, offset: int) -> None:
        member_id, generation = self.identity(self.clients[who], group_id, claim)
        partitions = [
            OffsetCommitPartition(
                partition_index=number, committed_offset=offset, committed_metadata=None
            )
            for number in range(offset % 2 + 1)
        ]
        self.ask(
            self.clients[who],
            group_id,
            OffsetCommitRequest(
                group_id=group_id,
                generation_id_or_member_epoch=generation,
                member_id=member_id,
                topics=[OffsetCommitTopic(name="t", partitions=partitions)],
            ),
        )

    @rule(who=clients, group_id=groups)
    def fetch(self, who: int, group_id: str) -> None:
        topics = [OffsetFetchTopic(name=name, partition_indexes=[0, 1]) for name in ("t", "u")]
        self.ask(self.clients[who], group_id, OffsetFetchRequest(group_id=group_id, topics=topics))

    @rule(who=clients, group_id=groups, claim=claims)
    def leave(self, who: int, group_id: str, claim: str) -> None:
        member_id, _ = self.identity(self.clients[who], group_id, claim)
        self.ask(
            self.clients[who],
            group_id,
            LeaveGroupRequest(group_id=group_id, member_id=member_id),
        )

    @rule(who=clients)
    def lose(self, who: int) -> None:
        client = self.clients[who]
        if client.connection:
            self.close(client.connection)
            client.connection, client.is_waiting = 0, False

    @rule(who=clients)
    def lose_abandoned(self, who: int) -> None:
        """Lose a connection that the client has replaced."""
        if self.clients[who].abandoned:
            self.close(self.clients[who].abandoned.pop())

    @rule(
        some=st.sets(clients, min_size=2),
        session=st.sampled_from(SESSIONS_MS),
        lost=st.sampled_from((None, 0, 1, 2)),
        late_ms=st.sampled_from((0, 4_000)),
        has_heartbeats=st.booleans(),
    )
    def cooperate(
        self,
        some: set[int],
        session: int,
        lost: int | None,
        late_ms: int,
        has_heartbeats: bool,
        error: int = 0,
        is_stolen: bool = False,
    ) -> None:
        """Let some clients join, and do what the coordinator asks.

        Args:
            some: The clients.
            session: Their session timeout.
            lost: A client that loses its connection before others answer.
            late_ms: How late they answer.
            has_heartbeats: True if the clients without a parked request send Heartbeats meanwhile.
            error: The error with which they answer; 0 for none.
            is_stolen: True if a client that is to assign first assigns as another member.
        """
        for who in sorted(some):
            if not self.clients[who].is_waiting:
                self.join(who, "g", "right", session, who % 3, "consumer")
        self.tick(1_000)
        if lost is not None:
            self.lose(lost)
        if late_ms:
            self.tick(late_ms)
        for who in sorted(some):
            if has_heartbeats and not self.clients[who].is_waiting:
                self.heartbeat(who, "g", "right")
        for who in sorted(some):
            if is_stolen and "g" in self.clients[who].asked:
                self.answer(who, "g", "other", 0)
            self.answer(who, "g", "right", error)

    def answer(self, who: int, group_id: str, claim: str, error: int) -> None:
        """Answer a request to assign."""

    def take_step(self, rng: Random) -> None:
        who, group_id = rng.randrange(4), rng.choice("gggh")
        claim = rng.choice(("right", "right", "right", "none", "other", "stale"))
        match rng.choices(range(9), (3, 3, 3, 1, 1, 1, 4, 2, 3))[0]:
            case 0:
                session, version = rng.choice(SESSIONS_MS), rng.randint(-1, 2)
                self.join(who, group_id, claim, session, version, "consumer")
            case 1:
                self.heartbeat(who, group_id, claim)
            case 2:
                self.commit(who, group_id, claim, rng.randrange(10))
            case 3:
                self.leave(who, group_id, claim)
            case 4:
                self.lose(who)
            case 5:
                self.lose_abandoned(who)
            case 6:
                some = set(rng.sample(range(4), rng.randint(2, 4)))
                lost, late_ms = rng.choice((None, None, 0, 1)), rng.choice((0, 0, 4_000))
                error = rng.choice((0, 0, 0, 23))
                has_heartbeats, is_stolen = rng.random() < 0.5, rng.random() < 0.2
                session = rng.choice(SESSIONS_MS)
                self.cooperate(some, session, lost, late_ms, has_heartbeats, error, is_stolen)
            case 7:
                self.answer(who, group_id, claim, rng.choice((0, 23)))
            case 8:
                self.tick(rng.choice((100, 1_000, 3_000, 7_000)))

    def teardown(self) -> None:
        """Check the offsets. Without requests all groups become empty, and no timer stays."""
        for group_id in ("g", "h"):
            self.fetch(0, group_id)
        for _ in range(4):
            self.tick(100_000)
        self.coordinator.check_empty()


class MultiAssignorMachine(JoinGroupMachine):
    """The coordinator of the design with many assignors."""

    dialect = MultiAssignorDialect()

    def __init__(self) -> None:
        super().__init__()
        self.join_response = MultiJoined
        self.coordinator = CheckedCoordinator(MultiAssignorCoordinator(SETTINGS))

    @initialize(is_compressed=st.booleans(), seed=walk_seeds, steps=walk_lengths)
    def begin(self, is_compressed: bool, seed: int, steps: int) -> None:
        self.coordinator = CheckedCoordinator(
            MultiAssignorCoordinator(SETTINGS, compresses_members=is_compressed)
        )
        self.walk(seed, steps)

    def join_request(
        self, group_id: str, member_id: str, session_ms: int, version: int, kind: str
    ) -> Message:
        names = (("range", "sticky"), ("sticky", "range"), ("range",), ("sticky",))[version]
        return MultiJoin(
            group_id=group_id,
            session_timeout=session_ms,
            member_id=member_id,
            protocol_type=kind,
            protocols=[
                JoinGroupProtocol(name=name, metadata=f"{name} {self.draws}".encode())
                for name in names
            ],
        )


class SingleAssignorMachine(JoinGroupMachine):
    """The coordinator of the design with a single assignor, with each choice and reaction."""

    dialect = SingleAssignorDialect()

    def __init__(self) -> None:
        super().__init__()
        self.join_response = SingleJoined
        self.coordinator = CheckedCoordinator(SingleAssignorCoordinator(SETTINGS))

    @initialize(
        choice=st.sampled_from(SynchronizerChoice),
        reaction=st.sampled_from(TimeoutReaction),
        seed=walk_seeds,
        steps=walk_lengths,
    )
    def begin(
        self, choice: SynchronizerChoice, reaction: TimeoutReaction, seed: int, steps: int
    ) -> None:
        self.coordinator = CheckedCoordinator(
            SingleAssignorCoordinator(SETTINGS, choice=choice, reaction=reaction)
        )
        self.walk(seed, steps)

    def join_request(
        self, group_id: str, member_id: str, session_ms: int, version: int, kind: str
    ) -> Message:
        return SingleJoin(
            group_id=group_id,
            protocol_type=kind,
            join=JoinPhase(
                session_timeout=session_ms,
                synchronize_timeout=version * 1_500,
                metadata_version=version,
                member_id=member_id,
                member_metadata=str(self.draws).encode(),
            ),
        )

    @rule(who=clients, group_id=groups, claim=claims, error=st.sampled_from((0, 0, 0, 23)))
    def answer(self, who: int, group_id: str, claim: str, error: int) -> None:
        """Answer a request to assign, or assign without being asked."""
        client = self.clients[who]
        if claim == "right" and group_id not in client.asked:
            return
        member_id, generation = self.identity(client, group_id, claim)
        members = client.asked.get(group_id, ("nobody",))
        if claim == "right":
            del client.asked[group_id]
        self.ask(
            client,
            group_id,
            SingleJoin(
                group_id=group_id,
                protocol_type="consumer",
                synchronized=Synchronized(
                    error_code=error,
                    generation_id=generation,
                    member_id=member_id,
                    members=[
                        SyncedMember(member_id=each, synced_member_state=f"for {each}".encode())
                        for each in members
                    ],
                ),
            ),
        )

    @rule(who=clients)
    def send_no_phase(self, who: int) -> None:
        self.ask(self.clients[who], "g", SingleJoin(group_id="g", protocol_type="consumer"))
