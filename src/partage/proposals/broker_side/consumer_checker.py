"""The checker of a consumer: it follows the events and outcomes of the machine.

It compares each outcome with a model of what was sent and received, not with the machine's state.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from partage.model.topic_partition import TopicPartition
from partage.proposals import machine
from partage.proposals.broker_side import events
from partage.proposals.broker_side.consumer import ConsumerTimer
from partage.proposals.broker_side.messages import (
    BrokerAddress,
    ClusterMetadataRequest,
    ClusterMetadataResponse,
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
from partage.proposals.broker_side.records import partition_number
from partage.proposals.broker_side.settings import PushConsumerSettings
from partage.proposals.broker_side.topic_count import static_topic_count
from partage.wire.types import Message

#: The errors of a registration that another attempt does not resolve.
_FATAL: Final = frozenset({PushError.INVALID_SESSION_TIMEOUT, PushError.INVALID_REGISTRATION})
_RESPONSES: Final[dict[type[Message], type[Message]]] = {
    PingRequest: PingResponse,
    StopFetcherRequest: StopFetcherResponse,
    StartFetcherRequest: StartFetcherResponse,
}


class PushConsumerChecker:
    """Follows a consumer, and checks these rules:

    1. Each request of the coordinator gets its response, in order, until the connection is closed.
    2. The response to StopFetcher is sent when the consumer no longer reads, and that to
       StartFetcher after it has begun, with the offsets of the request.
    3. A response has the positions of the partitions, or none if the consumer does not commit. It
       names the partitions as the last StartFetcher request did.
    4. The consumer does not read after the session timeout without a request, and not after a stall
       of a third of it. It then registers again, also if the stall began before the response to its
       registration.
    5. A consumer that shuts down does not begin to read. It closes with the ping after the one that
       got its offsets. It closes with the first ping if it does not commit, and at once without a
       registration.
    6. A silence counts from the last request.
    7. The consumer tries the brokers of the last list in turn, and after them those of the user. A
       failed try is followed by the back-off, and each try has the session timeout as its timeout.
    8. A registration has the settings of the user and the current subscription. Exactly errors that
       another attempt does not resolve are reported.
    9. A consumer whose fetchers have failed registers again at the next ping; after other requests
       it stays registered. Exactly the
       partitions that were out of range are reset when it reads them again.

    Args:
        settings: The settings of the consumer.
    """

    def __init__(self, settings: PushConsumerSettings) -> None:
        self._settings = settings
        self._last_ms = 0
        self._heard_ms = 0
        self._is_closing = False
        self._is_closed = False
        self._has_reported_end = False
        self._is_asking = False  # a broker of the list was asked for the coordinator
        self._is_registering = False
        self._is_served = False
        self._topic_count = settings.topic_count
        self._brokers = settings.bootstrap_brokers
        self._next_broker = 0
        self._coordinator: BrokerAddress | None = None
        self._owed: deque[type[Message]] = deque()
        self._awaits_positions = False
        self._positions: dict[TopicPartition, int] | None = None
        self._assigned: dict[TopicPartition, int] = {}
        self._names: dict[TopicPartition, str] = {}
        self._start_error: int = 0  # of the last StartFetcher request
        self._owned: frozenset[TopicPartition] = frozenset()
        self._reading: set[TopicPartition] = set()
        self._out_of_range: frozenset[TopicPartition] = frozenset()
        self._have_fetchers_failed = False

    def check(self, event: machine.Event, outcome: machine.MemberOutcome[Any]) -> None:
        """Check the outcome of an event.

        Raises:
            AssertionError: A rule does not hold.
        """
        if self._is_closed:
            assert not outcome.actions, f"a closed consumer does {outcome.actions}"
            return
        is_over = self._is_session_over(event.at_ms)
        self._last_ms = event.at_ms
        self._positions = None
        if is_over:
            assert self._has(outcome, machine.Disconnect), "the session is over, and nothing ends"
        is_lost = is_over and not isinstance(
            event, machine.LeaveRequested | machine.SubscriptionChanged
        )
        must_close = (is_over and self._is_closing) or (
            not is_lost and self._note_event(event, outcome, is_over=is_over)
        )
        for action in outcome.actions:
            self._on_action(action)
        self._check_timers(event.at_ms, outcome)
        self._check_end(outcome, must_close=must_close)
        if self._reading:
            end_ms = self._heard_ms + self._settings.session_timeout_ms
            assert event.at_ms < end_ms, f"the consumer reads, and its session ended at {end_ms}"
        if not self._awaits_positions:
            assert not self._owed, f"{self._owed} were not sent"

    def _is_session_over(self, at_ms: int) -> bool:
        timeout_ms = self._settings.session_timeout_ms
        is_stalled = at_ms - self._last_ms > timeout_ms // 3
        is_silent = self._is_served and at_ms >= self._heard_ms + timeout_ms
        return is_silent or (is_stalled and (self._is_served or self._is_registering))

    @staticmethod
    def _has(outcome: machine.MemberOutcome[Any], kind: type[machine.Action]) -> bool:
        return any(isinstance(action, kind) for action in outcome.actions)

    # Events

    def _note_event(
        self, event: machine.Event, outcome: machine.MemberOutcome[Any], *, is_over: bool
    ) -> bool:
        """Note an event that the consumer handles; return True if it has to close."""
        match event:
            case machine.ResponseReceived(message=message):
                self._heard_ms = event.at_ms
                return self._note_message(message, outcome)
            case events.BrokerResponseReceived(message=ClusterMetadataResponse() as response):
                if self._is_asking:
                    self._note_metadata(response)
            case machine.PositionsTaken(positions=positions):
                self._positions, self._awaits_positions = positions, False
            case events.OffsetsOutOfRange(partitions=partitions):
                self._have_fetchers_failed = True
                self._out_of_range |= partitions
                assert not self._reading or self._has(outcome, machine.StopReading), (
                    "the fetchers have stopped, and the consumer does not know it"
                )
            case machine.SubscriptionChanged(topics=topics):
                self._topic_count = static_topic_count(topics)
                must_register = not is_over and (self._is_served or self._is_registering)
                assert not must_register or self._has(outcome, machine.Disconnect), (
                    "the consumer keeps the registration of its last subscription"
                )
                return must_register and self._is_closing
            case machine.LeaveRequested():
                self._is_closing = True
                return is_over or not self._is_served
            case machine.Disconnected():
                self._on_connection_closed()
                return self._is_closing
        return False

    def _note_metadata(self, response: ClusterMetadataResponse) -> None:
        known = {broker.id: broker for broker in response.brokers_info}
        self._coordinator = None if response.error_code else known.get(response.coordinator_id)
        if self._coordinator is not None:
            self._note_brokers(response.brokers_info)

    def _note_brokers(self, brokers: list[BrokerAddress]) -> None:
        found = {(each.host, each.port) for each in brokers}
        further = [
            each for each in self._settings.bootstrap_brokers if (each.host, each.port) not in found
        ]
        self._brokers = (*brokers, *further)

    def _note_message(self, message: Message, outcome: machine.MemberOutcome[Any]) -> bool:
        match message:
            case RegisterConsumerResponse(error_code=error):
                reasons = [
                    each.reason for each in outcome.actions if isinstance(each, machine.ReportError)
                ]
                expected = [PushError(error).name] if error in _FATAL else []
                assert reasons == expected, f"error {error} is reported as {reasons}"
                self._is_registering, self._is_served = False, not error
                return bool(expected)
            case PingRequest() if self._has_reported_end:
                return True
            case PingRequest() if self._have_fetchers_failed and not self._is_closing:
                assert self._has(outcome, events.ConnectBroker), "failed fetchers stay registered"
                return False
            case StopFetcherRequest():
                self._have_fetchers_failed = False
            case StartFetcherRequest(ownership_info=threads, brokers_info=brokers):
                self._have_fetchers_failed = False
                self._note_brokers(brokers)
                parts = [part for thread in threads for part in thread.assigned_parts]
                self._names = {
                    TopicPartition(part.topic, partition_number(part.partition)): part.partition
                    for part in parts
                }
                self._start_error = 0
                self._assigned = {
                    TopicPartition(part.topic, partition_number(part.partition)): part.offset
                    for part in parts
                }
                if any(each.partition < 0 for each in self._assigned):
                    self._start_error, self._assigned = PushError.FETCHER_FAILED, {}
                self._owned = frozenset() if self._is_closing else frozenset(self._assigned)
        has_left = self._has(outcome, events.ConnectBroker)
        assert not has_left, f"the consumer registers again after {message}"
        self._owed.append(_RESPONSES[type(message)])
        if isinstance(message, PingRequest) and self._is_closing:
            self._has_reported_end = self._settings.auto_commit
            return not self._settings.auto_commit
        return False

    # Actions

    def _on_action(self, action: machine.Action) -> None:
        match action:
            case machine.Disconnect():
                self._on_connection_closed()
            case events.ConnectBroker(broker=broker):
                expected = self._brokers[self._next_broker % len(self._brokers)]
                assert broker == expected, f"{broker} is tried instead of {expected}"
                self._next_broker += 1
                self._is_asking = False
            case events.DisconnectBroker():
                self._is_asking = False
            case events.SendToBroker(message=message):
                assert isinstance(message, ClusterMetadataRequest), f"{message} to a broker"
                self._is_asking = True
            case events.ConnectCoordinator(broker=broker):
                assert broker == self._coordinator, f"{broker} is not {self._coordinator}"
            case machine.Send(message=RegisterConsumerRequest() as request):
                self._check_registration(request)
                self._owed.clear()
                self._is_registering = True
            case machine.Send(message=message):
                assert self._owed, f"{message} answers no request"
                owed = self._owed.popleft()
                assert type(message) is owed, f"{message} is sent instead of {owed}"
                self._check_response(message)
            case machine.StartReading(offsets=offsets):
                assert not self._is_closing, "a consumer that shuts down begins to read"
                reset = self._out_of_range & self._assigned.keys()
                known = {each: at for each, at in self._assigned.items() if each not in reset}
                assert offsets == known, f"{offsets} are read: {known}"
                self._reading = set(known)
            case events.ResetPositions(partitions=partitions, to=to):
                assert to == self._settings.auto_offset_reset, f"resets to {to}"
                reset = self._out_of_range & self._assigned.keys()
                assert partitions == reset, f"{partitions} are reset, not {reset}"
                self._reading |= partitions
            case machine.StopReading():
                assert self._reading, "the consumer stops without reading"
                self._reading.clear()
            case machine.CommitDue(partitions=partitions):
                assert partitions == self._owned, f"positions of {partitions}, not {self._owned}"
                self._awaits_positions = True

    def _on_connection_closed(self) -> None:
        self._owed.clear()
        self._owned = frozenset()
        self._awaits_positions = False
        self._have_fetchers_failed = False
        self._is_registering = self._is_served = False

    def _check_registration(self, request: RegisterConsumerRequest) -> None:
        settings = self._settings
        expected = RegisterConsumerRequest(
            group_id=settings.group_id,
            consumer_id=settings.consumer_id,
            topic_count=self._topic_count,
            auto_commit=settings.auto_commit,
            auto_offset_rest=settings.auto_offset_reset,
            session_timeout_ms=settings.session_timeout_ms,
        )
        assert request == expected, f"registers with {request}, not {expected}"

    def _check_response(self, message: Any) -> None:
        assert message.consumer_id == self._settings.consumer_id, f"{message} of another consumer"
        is_start = isinstance(message, StartFetcherResponse)
        error = self._start_error if is_start else 0
        assert message.error_code == error, f"{message} does not have the error {error}"
        if is_start:
            expected = set() if self._is_closing else set(self._assigned)
            assert self._reading == expected, f"{self._reading} are read, not {expected}"
            if expected:
                self._out_of_range = frozenset()
            return
        if not self._settings.auto_commit:
            assert message.offset_info is None, "offsets are reported without auto commit"
        else:
            assert message.offset_info is not None, "no offsets are reported"
            sent = {
                TopicPartition(each.topic, partition_number(each.partition)): each.offset
                for each in message.offset_info
            }
            assert sent == self._positions, f"{sent} are reported, not {self._positions}"
            for each in message.offset_info:
                partition = TopicPartition(each.topic, partition_number(each.partition))
                assert each.partition == self._names[partition], f"{partition}: {each.partition}"
        if isinstance(message, StopFetcherResponse):
            assert not self._reading, "the consumer reads after it has stopped"
            self._owned = frozenset()

    # Timers and the end

    def _check_timers(self, at_ms: int, outcome: machine.MemberOutcome[Any]) -> None:
        timeout_ms = self._settings.session_timeout_ms
        for key, deadline_ms in outcome.timers:
            if deadline_ms is None:
                continue
            wait_ms = deadline_ms - at_ms
            match key:
                case ConsumerTimer.STALL:
                    assert wait_ms < timeout_ms // 3, "a stall is noticed too late"
                case ConsumerTimer.RETRY:
                    assert wait_ms == self._settings.retry_backoff_ms, f"backs off {wait_ms} ms"
                case ConsumerTimer.SILENCE:
                    assert wait_ms == timeout_ms, f"waits {wait_ms} ms for a message"

    def _check_end(self, outcome: machine.MemberOutcome[Any], *, must_close: bool) -> None:
        """Check that the consumer closes if it has to, and that it otherwise goes on."""
        armed = {key for key, deadline_ms in outcome.timers if deadline_ms is not None}
        last = next(
            (
                each
                for each in reversed(outcome.actions)
                if isinstance(each, machine.Disconnect | events.ConnectBroker)
            ),
            None,
        )
        is_closed = isinstance(last, machine.Disconnect) and ConsumerTimer.RETRY not in armed
        assert is_closed == must_close, f"closed: {is_closed}, not {must_close}"
        self._is_closed = is_closed
