"""State machines for Hypothesis: any order of requests, timers and losses at a coordinator."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from partage.proposals import machine
from partage.proposals.broker_side.coordinator import PushCoordinator
from partage.proposals.broker_side.events import BrokersChanged, RebalancingSwitched, Resigned
from partage.proposals.broker_side.messages import (
    BrokerAddress,
    ClusterMetadataRequest,
    PartitionOffset,
    PingRequest,
    PingResponse,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
    StartFetcherRequest,
    StartFetcherResponse,
    StopFetcherRequest,
    StopFetcherResponse,
)
from partage.proposals.broker_side.settings import PushCoordinatorSettings, RebalanceMethod
from partage.proposals.designs.checked import CheckedCoordinator
from partage.proposals.join_group.checker import Dialect
from partage.proposals.join_group.settings import CoordinatorSettings
from partage.proposals.machine import Connection
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
from partage.proposals.single_assignor.messages import Join, SyncedMember, Synchronized
from partage.proposals.single_assignor.messages import JoinGroupRequest as SingleJoin
from partage.proposals.single_assignor.messages import JoinGroupResponse as SingleJoined
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
                connection=Connection(connection),
                message=message,
                draw=self.draws,
            )
        )

    def close(self, connection: int) -> None:
        self.handle(machine.ConnectionLost(at_ms=self.now_ms, connection=Connection(connection)))

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
                known = [each.ids[group_id][-1] for each in self.clients if group_id in each.ids]
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
        version=st.integers(0, 2),
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

    @rule(some=st.sets(clients, min_size=1), session=st.sampled_from(SESSIONS_MS))
    def cooperate(self, some: set[int], session: int) -> None:
        """Let some clients join, and do what the coordinator asks."""
        for who in sorted(some):
            if not self.clients[who].is_waiting:
                self.join(who, "g", "right", session, 0, "consumer")
        self.tick(1_000)
        for who in sorted(some):
            self.answer(who, "g", "right", 0)

    def answer(self, who: int, group_id: str, claim: str, error: int) -> None:
        """Answer a request to assign."""

    def teardown(self) -> None:
        """Check that without requests all groups become empty, and no timer stays."""
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

    @initialize(is_compressed=st.booleans())
    def begin(self, is_compressed: bool) -> None:
        self.coordinator = CheckedCoordinator(
            MultiAssignorCoordinator(SETTINGS, compresses_members=is_compressed)
        )

    def join_request(
        self, group_id: str, member_id: str, session_ms: int, version: int, kind: str
    ) -> Message:
        names = (("range", "sticky"), ("sticky", "range"), ("range",))[version]
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
        choice=st.sampled_from(SynchronizerChoice), reaction=st.sampled_from(TimeoutReaction)
    )
    def begin(self, choice: SynchronizerChoice, reaction: TimeoutReaction) -> None:
        self.coordinator = CheckedCoordinator(
            SingleAssignorCoordinator(SETTINGS, choice=choice, reaction=reaction)
        )

    def join_request(
        self, group_id: str, member_id: str, session_ms: int, version: int, kind: str
    ) -> Message:
        return SingleJoin(
            group_id=group_id,
            protocol_type=kind,
            join=Join(
                session_timeout=session_ms,
                synchronize_timeout=-1 if not kind else version * 1_500,
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
        members = client.asked.pop(group_id, ("nobody",))
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


TOPIC_COUNTS = ('{"t":1}', '{"t":2,"u":1}', "*1*t.*", '{"t":1}', "nonsense")


class PushMachine(CoordinatorMachine):
    """The coordinator of the first design, with consumers that answer, or do not."""

    def __init__(self) -> None:
        super().__init__()
        self.topics = {"t": 3, "u": 1}
        self.waiting: dict[int, list[Message]] = {}  # requests of each connection
        self.names: dict[int, str] = {}
        self.owned: dict[int, list[PartitionOffset]] = {}
        self.offset = 0
        self.start(RebalanceMethod.STOP_FETCHERS, 1)

    @initialize(method=st.sampled_from(RebalanceMethod), handlers=st.sampled_from((1, 1, 2)))
    def begin(self, method: RebalanceMethod, handlers: int) -> None:
        self.start(method, handlers)

    def start(self, method: RebalanceMethod, handlers: int) -> None:
        self.settings = PushCoordinatorSettings(
            brokers=(BrokerAddress(id=3, host="h", port=9092),),
            broker_id=3,
            rebalance_method=method,
            rebalance_threadpool_size=handlers,
            rebalance_queue_size=1,
            rebalance_retries_max=1,
            ping_retries_max=1,
        )
        self.new_coordinator()

    def new_coordinator(self) -> None:
        self.coordinator = CheckedCoordinator(PushCoordinator(self.settings))
        for record in self.records:
            self.coordinator.apply(record)
        self.handle(machine.Elected(at_ms=self.now_ms, topics=self.topics))

    def hear(self, connection: int, message: Message) -> None:
        if isinstance(message, PingRequest | StopFetcherRequest | StartFetcherRequest):
            self.waiting.setdefault(connection, []).append(message)
        elif isinstance(message, RegisterConsumerResponse) and message.error_code == 0:
            self.waiting.setdefault(connection, [])

    def on_close(self, connection: int) -> None:
        self.waiting.pop(connection, None)
        self.owned.pop(connection, None)

    @rule(
        who=clients,
        group_id=st.sampled_from(("g", "g", "h", "i", "")),
        count=st.sampled_from(TOPIC_COUNTS),
        session=st.sampled_from((*SESSIONS_MS, 5_999)),
        reset=st.sampled_from(("smallest", "smallest", "largest", "nearest")),
    )
    def register(self, who: int, group_id: str, count: str, session: int, reset: str) -> None:
        connection = self.new_connection()
        self.names[connection] = f"c{who}"
        self.send(
            connection,
            RegisterConsumerRequest(
                group_id=group_id,
                consumer_id=f"c{who}",
                topic_count=count,
                auto_commit=True,
                auto_offset_rest=reset,
                session_timeout_ms=session,
            ),
        )

    def pick(self, which: int) -> int:
        return sorted(self.waiting)[which % len(self.waiting)]

    @precondition(lambda self: self.waiting)
    @rule(which=clients, error=st.sampled_from((0, 0, 0, 9)))
    def respond(self, which: int, error: int) -> None:
        """Answer the oldest request of a consumer."""
        connection = self.pick(which)
        if not self.waiting[connection]:
            return
        request = self.waiting[connection].pop(0)
        name = self.names[connection]
        self.offset += 1
        match request:
            case PingRequest():
                offsets = self.offsets(connection)
                response: Message = PingResponse(consumer_id=name, offset_info=offsets)
            case StopFetcherRequest():
                response = StopFetcherResponse(
                    error_code=error, consumer_id=name, offset_info=self.offsets(connection)
                )
            case _:
                assert isinstance(request, StartFetcherRequest)
                self.owned[connection] = [
                    part for thread in request.ownership_info for part in thread.assigned_parts
                ]
                response = StartFetcherResponse(error_code=error, consumer_id=name)
        self.send(connection, response)

    def offsets(self, connection: int) -> list[PartitionOffset]:
        """Return new offsets of the owned partitions, and one of a partition of no consumer."""
        number = self.offset
        offset = (number, number, 1_000 - number, -1)[number % 4]  # some go back or are invalid
        offsets = [
            PartitionOffset(topic=each.topic, partition=each.partition, offset=offset)
            for each in self.owned.get(connection, [])
        ]
        if number % 5 == 0:
            offsets.insert(0, PartitionOffset(topic="x", partition="3-0", offset=number))
        if number % 3 == 0:
            offsets.append(PartitionOffset(topic="t", partition="3-0", offset=number))
        return list({(each.topic, each.partition): each for each in offsets}.values())

    @rule()
    def respond_to_all(self) -> None:
        """Let all consumers answer, until no request waits."""
        for _ in range(20):
            for connection in sorted(self.waiting):
                while self.waiting.get(connection):
                    self.respond(sorted(self.waiting).index(connection), 0)

    @precondition(lambda self: self.waiting)
    @rule(which=clients, kind=st.sampled_from((PingResponse, StopFetcherResponse)))
    def respond_unasked(self, which: int, kind: type[Message]) -> None:
        connection = self.pick(which)
        if not self.waiting[connection]:
            self.send(connection, kind(consumer_id=self.names[connection]))

    @rule()
    def ask_metadata(self) -> None:
        self.send(self.new_connection(), ClusterMetadataRequest())

    @rule(ids=st.sampled_from(((3,), (3, 4), (5, 3))), coordinator_id=st.sampled_from((3, None)))
    def change_brokers(self, ids: tuple[int, ...], coordinator_id: int | None) -> None:
        brokers = tuple(BrokerAddress(id=each, host=f"h{each}", port=9092) for each in ids)
        self.handle(
            BrokersChanged(at_ms=self.now_ms, brokers=brokers, coordinator_id=coordinator_id)
        )

    @precondition(lambda self: self.waiting)
    @rule(which=clients)
    def lose(self, which: int) -> None:
        connection = self.pick(which)
        self.on_close(connection)
        self.close(connection)

    @rule(topic=st.sampled_from(("t", "u", "tt")))
    def add_partition(self, topic: str) -> None:
        self.topics = {**self.topics, topic: self.topics.get(topic, 0) + 1}
        self.handle(machine.TopicsChanged(at_ms=self.now_ms, topics=self.topics))

    @rule(group_id=st.sampled_from(("g", "h")), is_enabled=st.booleans())
    def switch(self, group_id: str, is_enabled: bool) -> None:
        self.handle(
            RebalancingSwitched(at_ms=self.now_ms, group_id=group_id, is_enabled=is_enabled)
        )

    @rule(is_crash=st.booleans())
    def fail_over(self, is_crash: bool) -> None:
        """Start another coordinator with the same records, or elect this one again."""
        if is_crash:
            self.new_coordinator()
            self.waiting.clear()
            self.owned.clear()
            return
        self.handle(Resigned(at_ms=self.now_ms))
        for record in self.records:
            self.coordinator.apply(record)
        self.handle(machine.Elected(at_ms=self.now_ms, topics=self.topics))

    def teardown(self) -> None:
        """Check that consumers that answer are all started, and that all can leave."""
        for group_id in ("g", "h", "i"):
            self.switch(group_id, True)
        for _ in range(20):
            self.respond_to_all()
            self.tick(3_000)
        self.respond_to_all()
        push: Any = self.coordinator.machine
        for consumer in push.consumers.values():
            assert consumer.is_started, f"{consumer.id} is never started"
        for connection in sorted(self.waiting):
            self.on_close(connection)
            self.close(connection)
        self.tick(40_000)
        self.coordinator.check_empty()
