"""A state machine for Hypothesis: any order of registrations, responses, timers and losses at a
coordinator of the first design.
"""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from partage.proposals import machine
from partage.proposals.broker_side.attempt_checker import expected_threads
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
from partage.proposals.broker_side.records import consumer_of
from partage.proposals.broker_side.settings import PushCoordinatorSettings, RebalanceMethod
from partage.proposals.designs.checked import CheckedCoordinator
from partage.wire.types import Message

from .coordinator_properties import (
    SESSIONS_MS,
    CoordinatorMachine,
    clients,
    walk_lengths,
    walk_seeds,
)

TOPIC_COUNTS = ('{"t":1}', '{"t":2,"u":1}', "*1*t.*", '{"u":1}', "nonsense")
GROUPS = ("g", "g", "g", "h", "h", "i")


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

    @initialize(
        method=st.sampled_from(RebalanceMethod),
        handlers=st.sampled_from((1, 1, 2)),
        seed=walk_seeds,
        steps=walk_lengths,
    )
    def begin(self, method: RebalanceMethod, handlers: int, seed: int, steps: int) -> None:
        self.start(method, handlers)
        for who, group_id in enumerate(("g", "g", "h")):
            self.register(who, group_id, TOPIC_COUNTS[who], SESSIONS_MS[who], "smallest")
        self.walk(seed, steps)

    def take_step(self, rng: Random) -> None:
        which = rng.randrange(4)
        match rng.choices(range(12), (4, 4, 4, 6, 1, 1, 2, 1, 1, 1, 1, 1))[0]:
            case 0:
                count, session = rng.choice(TOPIC_COUNTS[:4]), rng.choice(SESSIONS_MS)
                self.register(which, rng.choice(GROUPS), count, session, "smallest")
            case 1 if self.waiting:
                self.respond(which, rng.choice((0, 0, 9)), rng.choice((0, 0, -1)))
            case 2:
                self.respond_to_all(rng.choice((None, 0, 1)), rng.choice((1, 2, 20)))
            case 3:
                self.tick(rng.choice((100, 1_000, 3_000, 7_000)))
            case 4:
                self.stall(rng.choice((200, 2_500, 20_000)))
            case 5 if self.waiting:
                self.lose(which)
            case 6:
                self.add_partition(rng.choice(("t", "t", "u", "tt")))
            case 7:
                self.switch(rng.choice(("g", "h")), rng.random() < 0.5)
            case 8:
                self.fail_over(rng.random() < 0.5)
            case 9:
                self.change_brokers(rng.choice(((3,), (3, 4))), rng.choice((3, None)))
            case 10 if self.waiting:
                self.respond_unasked(which, rng.choice((PingResponse, StopFetcherResponse)))
            case 11 if self.waiting:
                self.respond_to_all(phases=1)
                if self.waiting:  # a response may have closed the last connection
                    self.respond(which, 0)
                if self.waiting:
                    self.lose(which + 1)

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
        self.frozen: set[str] = set()  # the nodes of ZooKeeper
        self.new_coordinator()

    def new_coordinator(self) -> None:
        self.coordinator = CheckedCoordinator(PushCoordinator(self.settings))
        for record in self.records:
            self.coordinator.apply(record)
        self.ask_metadata()
        self.elect()

    def elect(self) -> None:
        for group_id in sorted(self.frozen):
            self.switch(group_id, False)
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
        group_id=st.sampled_from(("g", "g", "h", "i", "j", "")),
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
    @rule(
        which=clients,
        error=st.sampled_from((0, 0, 0, 9)),
        position=st.sampled_from((0, 0, 0, -1)),
    )
    def respond(self, which: int, error: int, position: int = 0) -> None:
        """Answer the oldest request of a consumer, or the newest one."""
        connection = self.pick(which)
        if not self.waiting[connection]:
            return
        request = self.waiting[connection].pop(position)
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

    @rule(failing=st.sampled_from((None, None, 0, 1)), phases=st.sampled_from((1, 2, 20)))
    def respond_to_all(self, failing: int | None = None, phases: int = 20) -> None:
        """Let all consumers answer, until no request waits or the last phase.

        Args:
            failing: A consumer that answers with errors in the last phase; None if none does.
            phases: StopFetcher is one, StartFetcher is the next one.
        """
        for phase in range(phases):
            asked = {each: len(requests) for each, requests in self.waiting.items()}
            for number, connection in enumerate(sorted(asked)):
                is_failing = number == failing and phase == min(phases, 2) - 1
                for _ in range(asked[connection]):
                    if self.waiting.get(connection):
                        which = sorted(self.waiting).index(connection)
                        self.respond(which, 9 if is_failing else 0)

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
        self.handle(machine.ClusterTopicsChanged(at_ms=self.now_ms, topics=self.topics))

    @rule(group_id=st.sampled_from(("g", "h")), is_enabled=st.booleans())
    def switch(self, group_id: str, is_enabled: bool) -> None:
        if is_enabled:
            self.frozen.discard(group_id)
        else:
            self.frozen.add(group_id)
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
        self.ask_metadata()
        self.register(0, "g", TOPIC_COUNTS[0], SESSIONS_MS[0], "smallest")
        for record in self.records:
            self.coordinator.apply(record)
        self.elect()

    def teardown(self) -> None:
        """Check that consumers with partitions are all started, and that all can leave."""
        for group_id in ("g", "h", "i"):
            self.switch(group_id, True)
        for _ in range(2):  # a rebalance that has failed earlier is repeated for the next change
            for topic in sorted(self.topics):
                self.add_partition(topic)
            for _ in range(10):
                self.respond_to_all()
                self.tick(3_000)
        self.respond_to_all()
        push: Any = self.coordinator.machine
        for group in push.groups.values():
            counts = {each.id: each.topic_count for each in group.consumers.values()}
            readers = {consumer_of(thread) for thread in expected_threads(counts, self.topics)}
            for consumer in group.consumers.values():
                is_right = consumer.is_started or consumer.id not in readers
                assert is_right, f"{consumer.id} is never started"
        for connection in sorted(self.waiting):
            self.on_close(connection)
            self.close(connection)
        self.tick(40_000)
        self.coordinator.check_empty()
