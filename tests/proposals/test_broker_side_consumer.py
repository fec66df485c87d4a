"""The consumer of the first design, event by event."""

from __future__ import annotations

import re
from typing import Any

import pytest

from partage.model.topic_partition import TopicPartition
from partage.proposals import machine
from partage.proposals.broker_side.consumer import (
    STATE_DESCRIPTIONS,
    ConsumerState,
    ConsumerTimer,
    PushConsumer,
)
from partage.proposals.broker_side.events import (
    BrokerConnected,
    BrokerDisconnected,
    BrokerResponseReceived,
    ConnectBroker,
    ConnectCoordinator,
    OffsetsOutOfRange,
    ResetPositions,
    SendToBroker,
)
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
    ThreadOwnership,
)
from partage.proposals.broker_side.settings import PushConsumerSettings
from partage.wire.types import Message

BROKERS = tuple(BrokerAddress(id=number, host=f"h{number}", port=9092) for number in range(2))
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SESSION_MS = 9_000
PING = PingRequest(consumer_id="c", num_retries=0)
STOP = StopFetcherRequest(consumer_id="c")


def start(*partitions: int, brokers: tuple[BrokerAddress, ...] = BROKERS) -> StartFetcherRequest:
    parts = [
        PartitionOffset(topic="t", partition=f"0-{each}", offset=10 + each) for each in partitions
    ]
    return StartFetcherRequest(
        consumer_id="c",
        ownership_info=[ThreadOwnership(consumer_thread_id="c-0", assigned_parts=parts)],
        brokers_info=list(brokers),
    )


def offsets(*values: int) -> list[PartitionOffset]:
    return [
        PartitionOffset(topic="t", partition=f"0-{number}", offset=value)
        for number, value in enumerate(values)
    ]


class Harness:
    """A consumer, its timers, and the positions of its partitions."""

    def __init__(self, **settings: Any) -> None:
        self.consumer = PushConsumer(
            PushConsumerSettings(
                **{
                    "bootstrap_brokers": BROKERS,
                    "group_id": "g",
                    "consumer_id": "c",
                    "topic_count": '{"t":1}',
                    "session_timeout_ms": SESSION_MS,
                    **settings,
                }
            )
        )
        self.now_ms = 0
        self.timers: dict[Any, int] = {}
        self.positions: dict[TopicPartition, int] = {T0: 20, T1: 21}

    @property
    def state(self) -> ConsumerState:
        return self.consumer.state

    def handle(self, event: machine.Event) -> list[Any]:
        """Handle an event; return messages, and other actions as they are."""
        outcome = self.consumer.handle(event)
        for key, deadline_ms in outcome.timers:
            if deadline_ms is None:
                self.timers.pop(key, None)
            else:
                self.timers[key] = deadline_ms
        results: list[Any] = []
        for action in outcome.actions:
            match action:
                case machine.Send(message=message):
                    results.append(message)
                case machine.CommitDue(partitions=partitions):
                    positions = {each: self.positions[each] for each in partitions}
                    results += self.handle(
                        machine.PositionsTaken(at_ms=self.now_ms, positions=positions)
                    )
                case _:
                    results.append(action)
        return results

    def event(self, kind: type[machine.Event], **fields: Any) -> list[Any]:
        return self.handle(kind(at_ms=self.now_ms, **fields))

    def receive(self, message: Message) -> list[Any]:
        return self.event(machine.ResponseReceived, message=message)

    def fire(self, timer: ConsumerTimer) -> list[Any]:
        self.now_ms = self.timers.pop(timer)
        return self.event(machine.TimerFired, key=timer)

    def wait(self, for_ms: int) -> list[Any]:
        """Let time pass, with the timers that are due."""
        end_ms, results = self.now_ms + for_ms, []
        while self.timers and min(self.timers.values()) <= end_ms:
            results += self.fire(min(self.timers, key=lambda each: self.timers[each]))
        self.now_ms = end_ms
        return results

    def metadata(self, **fields: Any) -> list[Any]:
        response = {"coordinator_id": 1, "brokers_info": list(BROKERS), **fields}
        return self.event(BrokerResponseReceived, message=ClusterMetadataResponse(**response))

    def connected(self) -> Harness:
        self.event(machine.Started)
        self.event(BrokerConnected)
        self.metadata()
        self.event(machine.Connected)
        return self

    def registered(self) -> Harness:
        self.connected().receive(RegisterConsumerResponse())
        return self

    def fetching(self, *partitions: int) -> Harness:
        self.registered().receive(start(*partitions or (0, 1)))
        return self


def kinds(results: list[Any]) -> list[str]:
    return [type(each).__name__ for each in results]


class TestStartUp:
    def test_consumer_finds_the_coordinator_through_a_broker_and_registers(self) -> None:
        harness = Harness()
        assert harness.event(machine.Started) == [ConnectBroker(broker=BROKERS[0])]
        assert harness.event(BrokerConnected) == [SendToBroker(message=ClusterMetadataRequest())]
        assert ConnectCoordinator(broker=BROKERS[1]) in harness.metadata()
        assert harness.event(machine.Connected) == [
            RegisterConsumerRequest(
                group_id="g",
                consumer_id="c",
                topic_count='{"t":1}',
                auto_commit=True,
                auto_offset_rest="smallest",
                session_timeout_ms=SESSION_MS,
            )
        ]
        assert harness.receive(RegisterConsumerResponse()) == []
        assert harness.state is ConsumerState.REGISTERED

    def test_brokers_are_tried_in_turn_until_one_answers(self) -> None:
        harness = Harness()
        harness.event(machine.Started)
        for number in (1, 0, 1):
            harness.event(BrokerDisconnected)
            assert harness.state is ConsumerState.BACKING_OFF
            assert harness.timers[ConsumerTimer.RETRY] == harness.now_ms + 100
            assert harness.fire(ConsumerTimer.RETRY) == [ConnectBroker(broker=BROKERS[number])]

    @pytest.mark.parametrize(
        "fields",
        [{"error_code": PushError.COORDINATOR_NOT_AVAILABLE}, {"coordinator_id": 7}],
    )
    def test_metadata_without_a_coordinator_leads_to_the_next_broker(
        self, fields: dict[str, int]
    ) -> None:
        harness = Harness()
        harness.event(machine.Started)
        harness.event(BrokerConnected)
        harness.metadata(**fields)
        assert harness.fire(ConsumerTimer.RETRY) == [ConnectBroker(broker=BROKERS[1])]

    def test_broker_that_does_not_answer_leads_to_the_next_one(self) -> None:
        harness = Harness()
        harness.event(machine.Started)
        assert harness.timers[ConsumerTimer.SILENCE] == SESSION_MS
        harness.fire(ConsumerTimer.SILENCE)
        assert harness.fire(ConsumerTimer.RETRY) == [ConnectBroker(broker=BROKERS[1])]

    def test_refused_duplicate_closes_the_connection_and_starts_again(self) -> None:
        harness = Harness().connected()
        error = RegisterConsumerResponse(error_code=PushError.DUPLICATE_CONSUMER_ID)
        assert "Disconnect" in kinds(harness.receive(error))
        assert kinds(harness.fire(ConsumerTimer.RETRY)) == ["ConnectBroker"]

    @pytest.mark.parametrize(
        "error", [PushError.INVALID_SESSION_TIMEOUT, PushError.INVALID_REGISTRATION]
    )
    def test_invalid_registration_is_reported_to_the_user(self, error: PushError) -> None:
        harness = Harness().connected()
        results = harness.receive(RegisterConsumerResponse(error_code=error))
        assert machine.ReportError(reason=error.name) in results
        assert "Disconnect" in kinds(results)
        assert harness.state is ConsumerState.CLOSED

    def test_new_brokers_are_learned_and_the_list_is_kept(self) -> None:
        harness = Harness().registered()
        new = BrokerAddress(id=5, host="h5", port=9092)
        harness.receive(start(0, brokers=(new,)))
        assert harness.consumer.brokers == (new, *BROKERS)
        harness.event(machine.Disconnected)
        harness.fire(ConsumerTimer.RETRY)
        harness.event(BrokerConnected)
        harness.metadata(brokers_info=[BROKERS[1]])
        assert harness.consumer.brokers == (BROKERS[1], BROKERS[0])

    @pytest.mark.parametrize(
        ("settings", "error"),
        [
            ({"bootstrap_brokers": ()}, "bootstrap_brokers is empty"),
            ({"auto_offset_reset": "middle"}, "'middle' is not one of largest, smallest"),
            ({"topic_count": "t"}, "topic_count 't' is invalid"),
            ({"topic_count": "*0*t"}, "0 threads are not between 1 and 1000"),
        ],
    )
    def test_invalid_settings_are_refused(self, settings: dict[str, Any], error: str) -> None:
        with pytest.raises(ValueError, match=re.escape(error)):
            Harness(**settings)

    def test_late_answer_of_a_broker_is_ignored(self) -> None:
        harness = Harness().registered()
        assert harness.event(BrokerConnected) == []
        assert harness.event(BrokerDisconnected) == []
        assert harness.metadata() == []
        assert harness.state is ConsumerState.REGISTERED


class TestRequests:
    def test_start_reads_from_the_given_offsets(self) -> None:
        harness = Harness().registered()
        assert harness.receive(start(0, 1)) == [
            machine.StartReading(offsets={T0: 10, T1: 11}),
            StartFetcherResponse(consumer_id="c"),
        ]
        assert harness.consumer.owned == {T0, T1}

    def test_ping_is_answered_with_the_offsets_of_all_partitions(self) -> None:
        harness = Harness().fetching()
        assert harness.receive(PING) == [PingResponse(consumer_id="c", offset_info=offsets(20, 21))]

    def test_stop_stops_the_fetchers_and_reports_the_offsets_once(self) -> None:
        harness = Harness().fetching()
        assert harness.receive(STOP) == [
            machine.StopReading(),
            StopFetcherResponse(consumer_id="c", offset_info=offsets(20, 21)),
        ]
        assert harness.state is ConsumerState.REGISTERED
        assert harness.receive(STOP) == [StopFetcherResponse(consumer_id="c", offset_info=[])]

    def test_consumer_without_auto_commit_sends_no_offsets(self) -> None:
        harness = Harness(auto_commit=False).fetching()
        assert harness.receive(PING) == [PingResponse(consumer_id="c")]
        assert harness.receive(STOP)[-1] == StopFetcherResponse(consumer_id="c")
        assert harness.consumer.owned == frozenset()

    def test_empty_start_leaves_the_consumer_without_partitions(self) -> None:
        harness = Harness().registered()
        assert harness.receive(
            StartFetcherRequest(consumer_id="c", ownership_info=[], brokers_info=[])
        ) == [StartFetcherResponse(consumer_id="c")]
        assert harness.consumer.is_stable

    def test_partition_without_a_number_is_an_error_of_the_fetchers(self) -> None:
        harness = Harness().fetching()
        part = PartitionOffset(topic="t", partition="0", offset=3)
        ownership = ThreadOwnership(consumer_thread_id="c-0", assigned_parts=[part])
        request = StartFetcherRequest(
            consumer_id="c", ownership_info=[ownership], brokers_info=list(BROKERS)
        )
        assert harness.receive(request) == [
            machine.StopReading(),
            StartFetcherResponse(error_code=PushError.FETCHER_FAILED, consumer_id="c"),
        ]
        assert harness.consumer.owned == frozenset()
        assert harness.state is ConsumerState.REGISTERED

    def test_changed_subscription_registers_again(self) -> None:
        harness = Harness().fetching()
        results = harness.event(machine.SubscriptionChanged, topics=frozenset({"u", "v"}))
        assert kinds(results) == ["StopReading", "Disconnect", "ConnectBroker"]
        harness.event(BrokerConnected)
        harness.metadata()
        (request,) = harness.event(machine.Connected)
        assert request.topic_count == '{"u":1,"v":1}'


class TestSuspicion:
    def test_silence_for_the_session_timeout_stops_the_fetchers(self) -> None:
        harness = Harness().fetching()
        assert harness.wait(SESSION_MS - 1) == []
        results = harness.wait(1)
        assert kinds(results) == ["StopReading", "Disconnect", "ConnectBroker"]
        assert harness.consumer.owned == frozenset()

    def test_each_request_of_the_coordinator_ends_the_suspicion(self) -> None:
        harness = Harness().fetching()
        for message in (PING, STOP, start(0)):
            harness.wait(SESSION_MS - 1)
            harness.receive(message)
            assert harness.timers[ConsumerTimer.SILENCE] == harness.now_ms + SESSION_MS
        assert harness.state is ConsumerState.FETCHING

    def test_stall_of_a_third_of_the_session_stops_the_fetchers(self) -> None:
        harness = Harness().fetching()
        assert harness.timers[ConsumerTimer.STALL] == 1_500
        harness.now_ms = 3_001  # no timer fired in the meantime
        results = harness.receive(PING)
        assert kinds(results) == ["StopReading", "Disconnect", "ConnectBroker"]

    def test_consumer_stopped_while_it_registers_ignores_later_requests(self) -> None:
        """The coordinator may have failed it, and another consumer may read its partitions."""
        harness = Harness()
        harness.event(machine.Started)
        harness.event(BrokerConnected)
        harness.metadata()
        harness.event(machine.Connected)
        harness.now_ms += SESSION_MS // 3 + 1  # no timer fired in the meantime
        assert kinds(harness.receive(RegisterConsumerResponse())) == ["Disconnect", "ConnectBroker"]

    def test_slow_response_to_a_registration_is_no_stall(self) -> None:
        harness = Harness()
        harness.event(machine.Started)
        harness.event(BrokerConnected)
        harness.metadata()
        harness.event(machine.Connected)
        assert harness.wait(SESSION_MS - 1) == []
        harness.receive(RegisterConsumerResponse())
        assert harness.state is ConsumerState.REGISTERED

    def test_shorter_stall_changes_nothing(self) -> None:
        harness = Harness().fetching()
        harness.now_ms = 3_000
        assert kinds(harness.receive(PING)) == ["PingResponse"]

    def test_lost_connection_stops_the_fetchers_and_tries_the_next_broker(self) -> None:
        harness = Harness().fetching()
        assert "StopReading" in kinds(harness.event(machine.Disconnected))
        assert ConsumerTimer.STALL not in harness.timers
        assert harness.fire(ConsumerTimer.RETRY) == [ConnectBroker(broker=BROKERS[1])]

    def test_positions_for_a_lost_connection_are_not_sent(self) -> None:
        harness = Harness().fetching()
        ping = machine.ResponseReceived(at_ms=0, message=PING)
        (due,) = harness.consumer.handle(ping).actions
        assert due == machine.CommitDue(partitions=frozenset({T0, T1}))
        harness.event(machine.Disconnected)
        assert harness.event(machine.PositionsTaken, positions=harness.positions) == []


class TestOutOfRange:
    def test_next_ping_leads_to_a_new_registration_and_a_reset(self) -> None:
        harness = Harness(auto_offset_reset="largest").fetching()
        assert kinds(harness.event(OffsetsOutOfRange, partitions=frozenset({T1}))) == [
            "StopReading"
        ]
        assert not harness.consumer.is_stable
        assert kinds(harness.receive(PING)) == ["Disconnect", "ConnectBroker"]
        harness.event(BrokerConnected)
        harness.metadata()
        harness.event(machine.Connected)
        harness.receive(RegisterConsumerResponse())
        assert harness.receive(start(0, 1))[:2] == [
            machine.StartReading(offsets={T0: 10}),
            ResetPositions(partitions=frozenset({T1}), to="largest"),
        ]
        assert harness.consumer.is_stable

    def test_rebalance_before_the_ping_resets_too(self) -> None:
        harness = Harness().fetching()
        harness.event(OffsetsOutOfRange, partitions=frozenset({T1}))
        harness.receive(STOP)
        assert "ResetPositions" in kinds(harness.receive(start(0, 1)))
        assert kinds(harness.receive(PING)) == ["PingResponse"]
        harness.receive(STOP)
        assert "ResetPositions" not in kinds(harness.receive(start(0, 1)))

    def test_shutdown_reports_offsets_although_fetchers_failed(self) -> None:
        harness = Harness().fetching()
        harness.event(OffsetsOutOfRange, partitions=frozenset({T1}))
        harness.event(machine.LeaveRequested)
        assert kinds(harness.receive(PING)) == ["PingResponse"]


class TestShutdown:
    def test_shutdown_waits_for_the_ping_after_the_one_with_its_offsets(self) -> None:
        harness = Harness().fetching()
        assert harness.event(machine.LeaveRequested) == [machine.StopReading()]
        assert harness.receive(PING) == [PingResponse(consumer_id="c", offset_info=offsets(20, 21))]
        assert harness.state is not ConsumerState.CLOSED
        assert "Disconnect" in kinds(harness.receive(PING))
        assert harness.state is ConsumerState.CLOSED
        assert harness.timers == {}

    def test_shutdown_without_auto_commit_ends_with_the_next_ping(self) -> None:
        harness = Harness(auto_commit=False).fetching()
        harness.event(machine.LeaveRequested)
        assert kinds(harness.receive(PING))[:1] == ["PingResponse"]
        assert harness.state is ConsumerState.CLOSED

    def test_shutdown_during_a_rebalance_starts_no_fetchers(self) -> None:
        harness = Harness().fetching()
        harness.event(machine.LeaveRequested)
        harness.receive(STOP)
        assert harness.receive(start(0)) == [StartFetcherResponse(consumer_id="c")]

    def test_shutdown_reports_no_offsets_of_partitions_that_it_never_read(self) -> None:
        harness = Harness().fetching()
        harness.event(machine.LeaveRequested)
        harness.receive(STOP)
        harness.receive(start(0))
        assert harness.receive(PING) == [PingResponse(consumer_id="c", offset_info=[])]

    def test_shutdown_without_a_registration_ends_at_once(self) -> None:
        for harness in (Harness(), Harness().connected()):
            harness.event(machine.LeaveRequested)
            assert harness.state is ConsumerState.CLOSED

    @pytest.mark.parametrize("is_silent", [False, True])
    def test_shutdown_ends_with_the_loss_of_the_coordinator(self, is_silent: bool) -> None:
        harness = Harness().fetching()
        harness.event(machine.LeaveRequested)
        if is_silent:
            harness.wait(SESSION_MS)
        else:
            harness.event(machine.Disconnected)
        assert harness.state is ConsumerState.CLOSED

    def test_closed_consumer_ignores_events(self) -> None:
        harness = Harness()
        harness.event(machine.LeaveRequested)
        assert harness.event(machine.Started) == []


def test_states_are_described() -> None:
    assert STATE_DESCRIPTIONS.keys() == set(ConsumerState)
