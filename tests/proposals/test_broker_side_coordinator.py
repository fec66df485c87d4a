"""The coordinator of the first design, event by event."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from partage.proposals import machine
from partage.proposals.broker_side.coordinator import PushCoordinator
from partage.proposals.broker_side.events import (
    BackoffTimer,
    CommitTimer,
    Outcome,
    PingTimer,
    RebalancingSwitched,
    RegistrationTimer,
    Resigned,
)
from partage.proposals.broker_side.handlers import RebalanceHandlers
from partage.proposals.broker_side.invariants import check
from partage.proposals.broker_side.messages import (
    BrokerAddress,
    ClusterMetadataRequest,
    ClusterMetadataResponse,
    PartitionOffset,
    PingRequest,
    PingResponse,
    PushError,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
    StartFetcherRequest,
    StartFetcherResponse,
    StopFetcherRequest,
    StopFetcherResponse,
)
from partage.proposals.broker_side.purgatory import RequestKind, WatcherTimer
from partage.proposals.broker_side.records import OffsetRecord, OwnerRecord, Record
from partage.proposals.broker_side.registry import PHASE_DESCRIPTIONS, RebalancePhase
from partage.proposals.broker_side.settings import PushCoordinatorSettings, RebalanceMethod
from partage.proposals.comparison.cell import Workload, run_cell
from partage.proposals.designs.broker_side import BrokerSide, BrokerSideClosing
from partage.proposals.join_group.settings import CoordinatorSettings, MemberSettings
from partage.proposals.machine import Connection
from partage.proposals.simulation.trial import FaultTrial
from partage.wire.types import Message

BROKER = BrokerAddress(id=0, host="h", port=9092)
SESSION_MS = 9_000


class Harness:
    """An elected coordinator. Connections are numbers, and consumer ``c1`` is on connection 1."""

    def __init__(
        self,
        topics: dict[str, int] | None = None,
        records: tuple[Record, ...] = (),
        **settings: Any,
    ) -> None:
        self.coordinator = PushCoordinator(PushCoordinatorSettings(brokers=(BROKER,), **settings))
        self.now_ms = 0
        self.timers: dict[Any, int] = {}
        self.records: list[Record] = []
        self.closed: list[int] = []
        self.failed: list[str] = []
        self.refused: list[tuple[str, str, str]] = []
        for record in records:
            self.coordinator.apply(record)
        self.elect({"t": 2} if topics is None else topics)

    def elect(self, topics: dict[str, int]) -> None:
        self.handle(machine.Elected(at_ms=self.now_ms, topics=topics))

    def handle(self, event: machine.Event) -> list[tuple[int, Any]]:
        outcome: Outcome = self.coordinator.handle(event)
        check(self.coordinator)
        for key, deadline_ms in outcome.timers:
            if deadline_ms is None:
                self.timers.pop(key, None)
            else:
                self.timers[key] = deadline_ms
        self.records += outcome.records
        self.closed += outcome.closes
        self.failed += outcome.failed_rebalances
        self.refused += outcome.refused_offsets
        return list(outcome.sends)

    def send(self, connection: int, message: Message) -> list[tuple[int, Any]]:
        return self.handle(
            machine.MessageReceived(
                at_ms=self.now_ms, connection=Connection(connection), message=message, draw=0
            )
        )

    def lose(self, connection: int) -> list[tuple[int, Any]]:
        return self.handle(
            machine.ConnectionLost(at_ms=self.now_ms, connection=Connection(connection))
        )

    def fire(self, key: Any) -> list[tuple[int, Any]]:
        self.now_ms = self.timers.pop(key)
        return self.handle(machine.TimerFired(at_ms=self.now_ms, key=key))

    def change_topics(self, topics: dict[str, int]) -> list[tuple[int, Any]]:
        return self.handle(machine.TopicsChanged(at_ms=self.now_ms, topics=topics))

    def switch(self, *, is_enabled: bool) -> list[tuple[int, Any]]:
        return self.handle(
            RebalancingSwitched(at_ms=self.now_ms, group_id="g", is_enabled=is_enabled)
        )

    def register(self, number: int, **changes: Any) -> list[tuple[int, Any]]:
        return self.send(number, registration(number, **changes))

    def settle(self, sends: list[tuple[int, Any]]) -> dict[int, StartFetcherRequest]:
        """Answer all requests; return the last StartFetcher request of each connection."""
        started: dict[int, StartFetcherRequest] = {}
        waiting = list(sends)
        while waiting:
            connection, message = waiting.pop(0)
            match message:
                case StopFetcherRequest(consumer_id=name):
                    waiting += self.send(connection, StopFetcherResponse(consumer_id=name))
                case StartFetcherRequest(consumer_id=name):
                    started[connection] = message
                    waiting += self.send(connection, StartFetcherResponse(consumer_id=name))
                case PingRequest(consumer_id=name):
                    waiting += self.send(connection, PingResponse(consumer_id=name))
        return started

    def watchers(self, kind: RequestKind) -> list[WatcherTimer]:
        return [
            each for each in self.timers if isinstance(each, WatcherTimer) and each.kind == kind
        ]

    @property
    def phase(self) -> RebalancePhase:
        return self.coordinator.groups["g"].phase

    @property
    def owners(self) -> dict[tuple[str, int], str | None]:
        return {
            (each.topic, each.partition): each.thread
            for each in self.records
            if isinstance(each, OwnerRecord)
        }


def registration(number: int, **changes: Any) -> RegisterConsumerRequest:
    fields: dict[str, Any] = {
        "group_id": "g",
        "consumer_id": f"c{number}",
        "topic_count": '{"t":1}',
        "auto_commit": True,
        "auto_offset_rest": "smallest",
        "session_timeout_ms": SESSION_MS,
    }
    return RegisterConsumerRequest(**{**fields, **changes})


def names(sends: list[tuple[int, Any]]) -> list[tuple[int, str]]:
    return [(connection, type(message).__name__) for connection, message in sends]


def parts(request: StartFetcherRequest) -> dict[str, list[tuple[str, str, int]]]:
    return {
        each.consumer_thread_id: [(p.topic, p.partition, p.offset) for p in each.assigned_parts]
        for each in request.ownership_info
    }


def offset(partition: int, value: int) -> PartitionOffset:
    return PartitionOffset(topic="t", partition=f"0-{partition}", offset=value)


def settled(count: int, **options: Any) -> Harness:
    """Return a harness with consumers that read their partitions."""
    harness = Harness(**options)
    for number in range(1, count + 1):
        harness.settle(harness.register(number))
    return harness


class TestRegistration:
    def test_first_consumer_is_stopped_started_and_owns_all_partitions(self) -> None:
        harness = Harness()
        sends = harness.register(1)
        assert names(sends) == [(1, "RegisterConsumerResponse"), (1, "StopFetcherRequest")]
        assert sends[0][1].error_code == PushError.NONE
        sends = harness.send(1, StopFetcherResponse(consumer_id="c1"))
        assert parts(sends[0][1]) == {"c1-0": [("t", "0-0", -1), ("t", "0-1", -1)]}
        assert sends[0][1].brokers_info == [BROKER]
        assert harness.owners == {}  # recorded after the response (step 4.6)
        assert harness.send(1, StartFetcherResponse(consumer_id="c1")) == []
        assert harness.owners == {("t", 0): "c1-0", ("t", 1): "c1-0"}
        assert harness.records[0].path == "/consumers/g/owners/t/0"

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"consumer_id": "c1"}, PushError.DUPLICATE_CONSUMER_ID),
            ({"session_timeout_ms": 5_999}, PushError.INVALID_SESSION_TIMEOUT),
            ({"topic_count": "{"}, PushError.INVALID_REGISTRATION),
            ({"topic_count": '{"t":0}'}, PushError.INVALID_REGISTRATION),
            ({"topic_count": "*1*("}, PushError.INVALID_REGISTRATION),
            ({"auto_offset_rest": "middle"}, PushError.INVALID_REGISTRATION),
            ({"group_id": ""}, PushError.INVALID_REGISTRATION),
            ({"consumer_id": ""}, PushError.INVALID_REGISTRATION),
        ],
    )
    def test_refused_registration_gets_an_error_and_disturbs_nobody(
        self, changes: dict[str, Any], error: PushError
    ) -> None:
        harness = settled(1)
        sends = harness.register(2, **changes)
        assert sends == [(2, RegisterConsumerResponse(error_code=error))]
        assert harness.closed == []  # the consumer closes the connection
        assert harness.phase is RebalancePhase.IDLE

    @pytest.mark.parametrize(
        "name", ["rebalance_threadpool_size", "ping_retries_max", "offset_commit_interval_ms"]
    )
    def test_invalid_settings_are_refused(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"{name}=-1 is below"):
            PushCoordinatorSettings(**{name: -1})

    def test_second_registration_on_a_connection_is_refused(self) -> None:
        harness = settled(1)
        ((_, response),) = harness.send(1, registration(2))
        assert response.error_code == PushError.INVALID_REGISTRATION

    def test_broker_that_is_not_coordinator_refuses(self) -> None:
        harness = settled(1)
        harness.handle(Resigned(at_ms=5))
        assert harness.closed == [1]
        assert harness.timers == {}
        ((_, response),) = harness.register(1)
        assert response.error_code == PushError.COORDINATOR_NOT_AVAILABLE
        ((_, metadata),) = harness.send(2, ClusterMetadataRequest())
        assert metadata.error_code == PushError.COORDINATOR_NOT_AVAILABLE

    def test_cluster_metadata_names_the_coordinator(self) -> None:
        assert Harness().send(9, ClusterMetadataRequest()) == [
            (9, ClusterMetadataResponse(coordinator_id=0, brokers_info=[BROKER]))
        ]

    @pytest.mark.parametrize(
        "message", [PingResponse(consumer_id="c9"), RegisterConsumerResponse()]
    )
    def test_unexpected_message_of_a_stranger_closes_its_connection(self, message: Message) -> None:
        harness = settled(1)
        harness.send(9, message)
        assert harness.closed == [9]

    def test_response_without_a_request_removes_the_consumer(self) -> None:
        harness = settled(2)
        sends = harness.send(2, StopFetcherResponse(consumer_id="c2"))
        assert harness.closed == [2]
        assert parts(harness.settle(sends)[1])["c1-0"] == [("t", "0-0", -1), ("t", "0-1", -1)]

    def test_threads_and_consumers_share_consecutive_partitions(self) -> None:
        harness = Harness(topics={"t": 5})
        harness.settle(harness.register(1, topic_count='{"t":2}'))
        started = harness.settle(harness.register(2))
        assert parts(started[1]) == {
            "c1-0": [("t", "0-0", -1), ("t", "0-1", -1)],
            "c1-1": [("t", "0-2", -1), ("t", "0-3", -1)],
        }
        assert parts(started[2]) == {"c2-0": [("t", "0-4", -1)]}

    def test_consumer_without_partitions_gets_an_empty_start(self) -> None:
        harness = Harness(topics={"t": 1})
        harness.settle(harness.register(1))
        assert names(harness.register(2)) == [(2, "RegisterConsumerResponse")]  # no new assignment


class TestPings:
    def test_pings_come_every_third_of_the_session(self) -> None:
        harness = settled(1)
        for at_ms in (3_000, 6_000, 9_000):
            sends = harness.fire(PingTimer())
            assert harness.now_ms == at_ms
            assert sends == [(1, PingRequest(consumer_id="c1", num_retries=0))]
            (watcher,) = harness.watchers(RequestKind.PING)
            assert harness.timers[watcher] == at_ms + 6_000
            harness.settle(sends)
            assert harness.watchers(RequestKind.PING) == []

    def test_pings_follow_the_shortest_wait(self) -> None:
        harness = Harness()
        harness.settle(harness.register(1, session_timeout_ms=30_000))
        harness.settle(harness.register(2, session_timeout_ms=12_000))
        order = []
        for _ in range(5):
            ((connection, ping),) = harness.fire(PingTimer())
            order.append((harness.now_ms, connection))
            harness.send(connection, PingResponse(consumer_id=ping.consumer_id))
        assert order == [(4_000, 2), (8_000, 2), (10_000, 1), (12_000, 2), (16_000, 2)]

    def test_silent_consumer_fails_after_the_maximum_of_retries(self) -> None:
        harness = settled(2, ping_retries_max=1)
        retries, sends = [], []
        while not harness.closed:
            key = min(
                (each for each in harness.timers if isinstance(each, PingTimer | WatcherTimer)),
                key=lambda each: harness.timers[each],
            )
            sends = harness.fire(key)
            for connection, message in sends:
                if isinstance(message, PingRequest) and connection == 1:
                    harness.send(1, PingResponse(consumer_id="c1"))
                elif isinstance(message, PingRequest):
                    retries.append(message.num_retries)
        assert harness.closed == [2]
        assert harness.now_ms == 3_000 + 6_000 + 3_000  # the second ping expires
        assert retries[0] == 0
        assert retries[-1] == 1
        assert parts(harness.settle(sends)[1])["c1-0"] == [("t", "0-0", -1), ("t", "0-1", -1)]

    def test_response_resets_the_count_of_failed_pings(self) -> None:
        harness = settled(1, ping_retries_max=1)
        harness.fire(PingTimer())
        harness.fire(PingTimer())
        (first, _) = harness.watchers(RequestKind.PING)
        harness.fire(first)
        harness.send(1, PingResponse(consumer_id="c1"))  # the answer to the expired ping
        assert harness.coordinator.consumers[Connection(1)].failed_pings == 0

    def test_next_ping_does_not_wait_for_the_response(self) -> None:
        """A consumer that shuts down cannot tell from the next ping that its offsets arrived."""
        harness = settled(1)
        harness.fire(PingTimer())
        assert harness.fire(PingTimer()) == [(1, PingRequest(consumer_id="c1", num_retries=0))]

    def test_stopped_coordinator_does_not_repeat_missed_pings(self) -> None:
        harness = settled(1)
        harness.timers[PingTimer()] = 100_000
        assert len(harness.fire(PingTimer())) == 1
        assert harness.timers[PingTimer()] > 100_000


class TestOffsets:
    def test_committer_writes_offsets_of_owned_partitions_only(self) -> None:
        harness = settled(2)
        harness.fire(PingTimer())
        harness.send(
            1,
            PingResponse(
                consumer_id="c1",
                offset_info=[
                    offset(0, 7),
                    offset(1, 8),
                    offset(0, -2),
                    PartitionOffset(topic="t", partition="x", offset=1),
                ],
            ),
        )
        assert harness.refused == [("c1", "t", "0-1"), ("c1", "t", "0-0"), ("c1", "t", "x")]
        del harness.records[:]
        harness.fire(CommitTimer())
        assert harness.records == [OffsetRecord(group_id="g", topic="t", partition=0, offset=7)]
        assert harness.records[0].path == "/consumers/g/offsets/t/0"
        harness.fire(CommitTimer())
        assert len(harness.records) == 1

    def test_rebalance_commits_before_it_starts_fetchers_from_the_offsets(self) -> None:
        harness = settled(1)
        harness.register(2)
        sends = harness.send(
            1, StopFetcherResponse(consumer_id="c1", offset_info=[offset(0, 5), offset(1, 6)])
        )
        assert sends == []
        del harness.records[:]
        sends = harness.send(2, StopFetcherResponse(consumer_id="c2"))
        assert [each.offset for each in harness.records if isinstance(each, OffsetRecord)] == [5, 6]
        assert parts(sends[0][1]) == {"c1-0": [("t", "0-0", 5)]}
        assert parts(sends[1][1]) == {"c2-0": [("t", "0-1", 6)]}


class TestRebalance:
    def test_changes_during_a_rebalance_cause_one_more(self) -> None:
        harness = settled(1)
        harness.register(2)
        assert names(harness.register(3)) == [(3, "RegisterConsumerResponse")]
        assert harness.change_topics({"t": 3}) == []
        assert harness.coordinator.groups["g"].is_pending
        harness.send(1, StopFetcherResponse(consumer_id="c1"))
        harness.send(2, StopFetcherResponse(consumer_id="c2"))
        harness.send(1, StartFetcherResponse(consumer_id="c1"))
        sends = harness.send(2, StartFetcherResponse(consumer_id="c2"))
        assert names(sends) == [(each, "StopFetcherRequest") for each in (1, 2, 3)]
        assert not harness.coordinator.groups["g"].is_pending
        harness.settle(sends)
        assert harness.owners == {("t", 0): "c1-0", ("t", 1): "c2-0", ("t", 2): "c3-0"}

    def test_unnecessary_rebalance_is_skipped(self) -> None:
        harness = settled(1)
        assert harness.change_topics({"t": 2, "u": 5}) == []
        assert harness.phase is RebalancePhase.IDLE

    def test_new_partitions_are_assigned(self) -> None:
        harness = settled(1)
        started = harness.settle(harness.change_topics({"t": 3}))
        assert len(parts(started[1])["c1-0"]) == 3

    def test_topic_created_after_the_registration_is_assigned(self) -> None:
        harness = Harness(topics={})
        assert names(harness.register(1)) == [(1, "RegisterConsumerResponse")]
        assert harness.settle(harness.change_topics({"t": 1})).keys() == {1}

    @pytest.mark.parametrize(
        ("topic_count", "topics"), [("*1*ev.*", ["events", "ev2"]), ("!1!ev.*", ["t", "users"])]
    )
    def test_wildcard_group_gets_new_topics_that_match(
        self, topic_count: str, topics: list[str]
    ) -> None:
        harness = Harness(topics={"t": 1, "events": 1})
        harness.settle(harness.register(1, topic_count=topic_count))
        started = harness.settle(harness.change_topics({"t": 1, "events": 1, "ev2": 1, "users": 1}))
        assert sorted(topic for topic, _, _ in parts(started[1])["c1-0"]) == sorted(topics)

    def test_late_response_backs_off_and_tries_again(self) -> None:
        harness = settled(1)
        harness.register(2)
        harness.send(1, StopFetcherResponse(consumer_id="c1"))
        (watcher,) = harness.watchers(RequestKind.STOP_FETCHER)
        assert harness.timers[watcher] == 6_000
        assert harness.fire(watcher) == []
        assert harness.phase is RebalancePhase.BACKING_OFF
        assert harness.timers[BackoffTimer("g")] == 8_000
        sends = harness.fire(BackoffTimer("g"))
        assert names(sends) == [(1, "StopFetcherRequest"), (2, "StopFetcherRequest")]
        # The response to the first request does not count for the second one.
        harness.send(1, StopFetcherResponse(consumer_id="c1"))
        assert harness.send(2, StopFetcherResponse(consumer_id="c2")) == []
        sends = harness.send(2, StopFetcherResponse(consumer_id="c2"))
        assert names(sends) == [(1, "StartFetcherRequest"), (2, "StartFetcherRequest")]

    def test_rebalance_fails_with_an_error_after_the_maximum_of_retries(self) -> None:
        harness = settled(1, rebalance_retries_max=2)
        harness.register(2)
        for attempt in range(3):
            assert harness.failed == []
            if attempt:
                harness.fire(BackoffTimer("g"))
            harness.fire(harness.watchers(RequestKind.STOP_FETCHER)[0])
            for watcher in harness.watchers(RequestKind.STOP_FETCHER):
                harness.timers.pop(watcher)
        assert harness.failed == ["g"]
        assert harness.phase is RebalancePhase.IDLE
        assert BackoffTimer("g") not in harness.timers

    @pytest.mark.parametrize("response", [StopFetcherResponse, StartFetcherResponse])
    def test_error_of_a_consumer_fails_the_attempt(self, response: type[Message]) -> None:
        harness = Harness()
        harness.register(1)
        if response is StartFetcherResponse:
            harness.send(1, StopFetcherResponse(consumer_id="c1"))
        harness.send(1, response(consumer_id="c1", error_code=PushError.FETCHER_FAILED))
        assert harness.phase is RebalancePhase.BACKING_OFF

    @pytest.mark.parametrize("phase", list(RebalancePhase))
    def test_lost_consumer_ends_the_attempt_and_another_one_begins(
        self, phase: RebalancePhase
    ) -> None:
        harness = settled(2, topics={"t": 4})
        if phase is not RebalancePhase.IDLE:
            harness.register(3)
        if phase is RebalancePhase.STARTING:
            for number in (1, 2, 3):
                harness.send(number, StopFetcherResponse(consumer_id=f"c{number}"))
        elif phase is RebalancePhase.BACKING_OFF:
            harness.fire(harness.watchers(RequestKind.STOP_FETCHER)[0])
        assert harness.phase is phase
        sends = harness.lose(2)
        assert (1, "StopFetcherRequest") in names(sends)
        assert BackoffTimer("g") not in harness.timers
        if phase is not RebalancePhase.IDLE:
            harness.send(1, StopFetcherResponse(consumer_id="c1"))  # to the attempt that ended
            harness.send(3, StopFetcherResponse(consumer_id="c3"))
        if phase is RebalancePhase.STARTING:
            harness.send(1, StartFetcherResponse(consumer_id="c1"))
        harness.settle(sends)
        assert {each for each in harness.owners.values() if each} <= {"c1-0", "c3-0"}

    def test_loss_of_a_new_consumer_restores_the_shares_of_the_others(self) -> None:
        """The owners in ZooKeeper are right, but the consumers have smaller shares."""
        harness = settled(1)
        harness.register(2)
        for number in (1, 2):
            harness.send(number, StopFetcherResponse(consumer_id=f"c{number}"))
        harness.send(1, StartFetcherResponse(consumer_id="c1"))
        started = harness.settle(harness.lose(2))
        assert len(parts(started[1])["c1-0"]) == 2

    def test_stopped_consumers_are_started_again_with_the_same_shares(self) -> None:
        harness = settled(1)
        harness.register(2)
        harness.send(1, StopFetcherResponse(consumer_id="c1"))
        started = harness.settle(harness.lose(2))
        assert len(parts(started[1])["c1-0"]) == 2

    def test_consumer_that_registers_again_is_started_again(self) -> None:
        harness = settled(2)
        harness.lose(2)
        sends = harness.send(1, StopFetcherResponse(consumer_id="c1"))
        harness.register(2)  # before the rebalance without it ends
        started = harness.settle(sends)
        assert started.keys() == {1, 2}

    def test_last_consumer_leaves_no_owners(self) -> None:
        harness = settled(1)
        assert harness.lose(1) == []
        assert set(harness.owners.values()) == {None}
        assert harness.coordinator.topic_groups == {"t": set()}

    def test_frozen_group_rebalances_when_it_is_switched_on(self) -> None:
        harness = settled(1)
        harness.switch(is_enabled=False)
        assert names(harness.register(2)) == [(2, "RegisterConsumerResponse")]
        assert harness.change_topics({"t": 4}) == []
        started = harness.settle(harness.switch(is_enabled=True))
        assert started.keys() == {1, 2}
        assert harness.switch(is_enabled=True) == []

    def test_group_is_frozen_from_the_start_by_configuration(self) -> None:
        harness = Harness(frozen_groups=frozenset({"g"}))
        assert names(harness.register(1)) == [(1, "RegisterConsumerResponse")]
        assert names(harness.register(1, group_id="h", consumer_id="x")) != []

    def test_one_handler_rebalances_one_group_at_a_time(self) -> None:
        harness = Harness(rebalance_threadpool_size=1, rebalance_queue_size=1)
        harness.register(1)
        for number, group_id in ((2, "h"), (3, "i"), (4, "j")):
            assert len(harness.register(number, group_id=group_id)) == 1
        sends = harness.send(1, StopFetcherResponse(consumer_id="c1"))
        for number in (1, 2, 3, 4):
            assert names(sends)[-1] == (number, "StartFetcherRequest")
            sends = harness.send(number, StartFetcherResponse(consumer_id=f"c{number}"))
            if number < 4:
                assert names(sends) == [(number + 1, "StopFetcherRequest")]
                sends = harness.send(number + 1, StopFetcherResponse(consumer_id="x"))

    def test_phases_are_described(self) -> None:
        assert PHASE_DESCRIPTIONS.keys() == set(RebalancePhase)


class TestHandlers:
    def test_group_stays_with_its_handler_while_it_has_a_task(self) -> None:
        handlers = RebalanceHandlers(2, 10)
        first = handlers.put("g", 0)
        assert handlers.next(first) == "g"
        assert handlers.put("g", 1) is first
        assert handlers.put("g", 1) is first  # at most one task waits
        assert list(first.queue) == ["g"]
        handlers.finish("g")
        assert handlers.next(first) == "g"
        handlers.finish("g")
        assert handlers.put("g", 1) is not first


class TestFailover:
    def owner(self, partition: int, thread: str) -> OwnerRecord:
        return OwnerRecord(
            group_id="g",
            topic="t",
            partition=partition,
            thread=thread,
            session_timeout_ms=SESSION_MS,
        )

    def new_coordinator(self) -> Harness:
        offsets = OffsetRecord(group_id="g", topic="t", partition=1, offset=40)
        return Harness(records=(self.owner(0, "c1-0"), self.owner(1, "c2-0"), offsets))

    def test_new_coordinator_waits_for_all_owners(self) -> None:
        harness = self.new_coordinator()
        assert names(harness.register(3)) == [(3, "RegisterConsumerResponse")]
        assert names(harness.register(2)) == [(2, "RegisterConsumerResponse")]
        sends = harness.register(1)
        assert len(sends) == 4
        started = harness.settle(sends)
        assert parts(started[2]) == {"c2-0": [("t", "0-1", 40)]}
        assert RegistrationTimer("g") not in harness.timers

    def test_new_coordinator_stops_waiting_when_sessions_are_over(self) -> None:
        harness = self.new_coordinator()
        harness.register(2)
        assert harness.timers[RegistrationTimer("g")] == SESSION_MS * 4 // 3
        started = harness.settle(harness.fire(RegistrationTimer("g")))
        assert len(parts(started[2])["c2-0"]) == 2

    def test_owners_are_kept_until_the_wait_is_over(self) -> None:
        harness = self.new_coordinator()
        harness.register(2)
        harness.lose(2)
        assert harness.records == []
        harness.fire(RegistrationTimer("g"))
        assert set(harness.owners.values()) == {None}

    def test_reelected_coordinator_begins_without_its_memory(self) -> None:
        harness = settled(1)
        harness.handle(Resigned(at_ms=1))
        for record in harness.records:
            harness.coordinator.apply(record)
        harness.elect({"t": 2})
        assert harness.coordinator.groups["g"].awaited == {"c1": SESSION_MS}
        assert harness.settle(harness.register(1)).keys() == {1}


class TestCloseConnections:
    def settled(self) -> Harness:
        harness = Harness(rebalance_method=RebalanceMethod.CLOSE_CONNECTIONS)
        sends = harness.register(1)
        assert names(sends) == [(1, "RegisterConsumerResponse"), (1, "StartFetcherRequest")]
        harness.settle(sends)
        return harness

    def test_new_consumer_closes_the_others_and_all_are_started(self) -> None:
        harness = self.settled()
        assert names(harness.register(2)) == [(2, "RegisterConsumerResponse")]
        assert harness.closed == [1]
        sends = harness.send(11, registration(1))
        assert sorted(harness.settle(sends)) == [2, 11]
        assert harness.owners == {("t", 0): "c1-0", ("t", 1): "c2-0"}

    def test_consumer_that_does_not_return_loses_its_partitions(self) -> None:
        harness = self.settled()
        harness.register(2)
        started = harness.settle(harness.fire(RegistrationTimer("g")))
        assert len(parts(started[2])["c2-0"]) == 2

    def test_task_that_waits_in_a_queue_does_not_shorten_the_wait(self) -> None:
        harness = Harness(rebalance_method=RebalanceMethod.CLOSE_CONNECTIONS)
        harness.register(1)
        harness.register(2)
        harness.fire(harness.watchers(RequestKind.START_FETCHER)[0])
        assert harness.fire(BackoffTimer("g")) == []
        assert harness.closed == [1]
        assert sorted(harness.settle(harness.send(11, registration(1)))) == [2, 11]


class _CheckedCoordinator(PushCoordinator):
    def handle(self, event: machine.Event) -> Outcome:
        outcome = super().handle(event)
        check(self)
        return outcome


@pytest.mark.parametrize("design", [BrokerSide, BrokerSideClosing])
def test_invariants_hold_in_worlds_with_faults(design: type[BrokerSide]) -> None:
    class Checked(design):  # type: ignore[misc, valid-type]
        def coordinator(self) -> PushCoordinator:
            return _CheckedCoordinator(self._coordinator_settings)

    for seed in range(1_000, 1_012):
        trial = FaultTrial(
            lambda: Checked(CoordinatorSettings(), MemberSettings(group_id="g")), seed
        )
        assert trial.run().rule is None, seed


def test_failure_at_the_first_late_ping_leads_to_two_readers() -> None:
    """Without retries, a consumer fails a third of its session before it stops by itself."""

    class WithoutRetries(BrokerSide):
        def coordinator(self) -> PushCoordinator:
            settings = msgspec.structs.replace(self._coordinator_settings, ping_retries_max=0)
            return PushCoordinator(settings)

    trial = FaultTrial(
        lambda: WithoutRetries(CoordinatorSettings(), MemberSettings(group_id="g")), 54
    )
    verdict = trial.run()
    assert verdict.rule == "one reader"
    assert "coordinator crash" not in verdict.faults


def test_consumer_that_shuts_down_loses_no_offsets() -> None:
    result = run_cell(Workload(design="broker-side", members=5, phases=("leave",)))
    assert result.phase("leave").duplicate_records == 0
