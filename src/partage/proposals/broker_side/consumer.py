"""The consumer: it finds the coordinator, registers, and does what the coordinator requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import StrEnum

from partage.model.topic_partition import TopicPartition
from partage.proposals.broker_side.events import (
    BrokerConnected,
    BrokerDisconnected,
    BrokerResponseReceived,
    ConnectBroker,
    ConnectCoordinator,
    DisconnectBroker,
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
)
from partage.proposals.broker_side.records import partition_number
from partage.proposals.broker_side.settings import PushConsumerSettings
from partage.proposals.broker_side.topic_count import static_topic_count
from partage.proposals.machine import (
    CommitDue,
    Connected,
    Disconnect,
    Disconnected,
    Event,
    LeaveRequested,
    MemberOutcome,
    PartitionCountsChanged,
    PositionsTaken,
    ReportError,
    ResponseReceived,
    Started,
    StartReading,
    StopReading,
    SubscriptionChanged,
    TimerFired,
)
from partage.wire.types import Message


class ConsumerState(StrEnum):
    """The states of a consumer."""

    INITIAL = "Initial"
    CONNECTING_TO_BROKER = "ConnectingToBroker"
    FETCHING_METADATA = "FetchingMetadata"
    CONNECTING_TO_COORDINATOR = "ConnectingToCoordinator"
    REGISTERING = "Registering"
    REGISTERED = "Registered"
    FETCHING = "Fetching"
    BACKING_OFF = "BackingOff"
    CLOSED = "Closed"


#: The meaning of each state, for the documentation.
STATE_DESCRIPTIONS: dict[ConsumerState, str] = {
    ConsumerState.INITIAL: "The user has not started the consumer.",
    ConsumerState.CONNECTING_TO_BROKER: "The consumer connects to the next broker of its list.",
    ConsumerState.FETCHING_METADATA: "The consumer waits for the brokers and the coordinator.",
    ConsumerState.CONNECTING_TO_COORDINATOR: "The consumer connects to the coordinator.",
    ConsumerState.REGISTERING: "The consumer waits for the response to its registration.",
    ConsumerState.REGISTERED: "The consumer answers pings. Its fetchers are stopped.",
    ConsumerState.FETCHING: "The consumer answers pings. Its fetchers read its partitions.",
    ConsumerState.BACKING_OFF: "The consumer waits before it tries the next broker.",
    ConsumerState.CLOSED: "The consumer has shut down.",
}

_SERVED = frozenset({ConsumerState.REGISTERED, ConsumerState.FETCHING})
_FATAL = frozenset({PushError.INVALID_SESSION_TIMEOUT, PushError.INVALID_REGISTRATION})


class ConsumerTimer(StrEnum):
    """The timers of a consumer."""

    RETRY = "retry"
    SILENCE = "silence"
    STALL = "stall"


Outcome = MemberOutcome[ConsumerTimer]


class PushConsumer:
    """A consumer of the design.

    Args:
        settings: The consumer's settings.

    Attributes:
        state: Its state.
        owned: The partitions of its last StartFetcher request, until it has reported their offsets.
        brokers: The brokers that it tries in turn: those of the last metadata, or its own list.
    """

    def __init__(self, settings: PushConsumerSettings) -> None:
        self.settings = settings
        self.state = ConsumerState.INITIAL
        self.owned: frozenset[TopicPartition] = frozenset()
        self.brokers: tuple[BrokerAddress, ...] = settings.bootstrap_brokers
        self._topic_count = settings.topic_count
        self._next_broker = 0
        self._partition_names: dict[TopicPartition, str] = {}
        self._is_reading = False
        self._out_of_range: frozenset[TopicPartition] = frozenset()
        self._have_fetchers_failed = False
        self._replies: deque[type[Message]] = deque()  # responses that wait for positions
        self._is_closing = False
        self._has_reported_end = False
        self._last_event_ms = 0
        self._silence_end_ms = 0

    @property
    def is_stable(self) -> bool:
        """True if the coordinator serves the consumer, or it has shut down."""
        if self.state in _SERVED:
            return not self._is_closing and not self._have_fetchers_failed
        return self.state is ConsumerState.CLOSED

    # Events

    def handle(self, event: Event) -> Outcome:
        """Handle an event and return its effects."""
        outcome = Outcome(event.at_ms)
        if self.state is ConsumerState.CLOSED:
            return outcome
        is_session_over = self.is_session_over(event.at_ms)
        self._last_event_ms = event.at_ms
        if is_session_over:
            # The process was stopped, or the coordinator is silent. The event may be out of date.
            self._reconnect(outcome)
            if not isinstance(event, LeaveRequested | SubscriptionChanged):
                return outcome
        self._handle(outcome, event)
        return outcome

    def is_session_over(self, at_ms: int) -> bool:
        """True if the process was stopped for too long, or the coordinator was silent.

        A process that was stopped while it registered may find requests that are out of date behind
        the response.
        """
        is_registered = self.state in _SERVED
        if not is_registered and self.state is not ConsumerState.REGISTERING:
            return False
        is_stalled = at_ms - self._last_event_ms > self._third_ms
        return is_stalled or (is_registered and at_ms >= self._silence_end_ms)

    def _handle(self, outcome: Outcome, event: Event) -> None:
        match event:
            case Started():
                self._connect_to_broker(outcome)
            case BrokerConnected():
                if self.state is ConsumerState.CONNECTING_TO_BROKER:
                    self.state = ConsumerState.FETCHING_METADATA
                    outcome.act(SendToBroker(message=ClusterMetadataRequest()))
            case BrokerDisconnected():
                if self._is_looking_up:
                    self._back_off(outcome)
            case BrokerResponseReceived(message=message):
                assert isinstance(message, ClusterMetadataResponse), f"unexpected {message}"
                if self.state is ConsumerState.FETCHING_METADATA:
                    self._on_metadata(outcome, message)
            case Connected():
                self._register(outcome)
            case Disconnected():
                self._on_disconnected(outcome)
            case ResponseReceived(message=message):
                self._on_message(outcome, message)
            case PositionsTaken(positions=positions):
                self._reply_with_offsets(outcome, positions)
            case OffsetsOutOfRange(partitions=partitions):
                self._stop_reading(outcome)
                self._have_fetchers_failed = True
                self._out_of_range |= partitions
            case SubscriptionChanged(topics=topics):
                self._topic_count = static_topic_count(topics)
                if self.state in _SERVED or self.state is ConsumerState.REGISTERING:
                    self._reconnect(outcome)
            case LeaveRequested():
                self._on_leave_requested(outcome)
            case PartitionCountsChanged():
                pass  # the coordinator watches the topics
            case TimerFired(key=key):
                self._on_timer(outcome, ConsumerTimer(str(key)))
            case _:
                raise AssertionError(f"unexpected event {event}")

    @property
    def _third_ms(self) -> int:
        return self.settings.session_timeout_ms // 3

    def _on_timer(self, outcome: Outcome, timer: ConsumerTimer) -> None:
        match timer:
            case ConsumerTimer.RETRY:
                self._connect_to_broker(outcome)
            case ConsumerTimer.SILENCE:
                self._back_off(outcome)  # a broker does not answer
            case ConsumerTimer.STALL:
                self._arm_stall_timer(outcome)

    def _arm_stall_timer(self, outcome: Outcome) -> None:
        """Schedule an event, so that a longer gap between events is a stall."""
        outcome.arm_timer(ConsumerTimer.STALL, self.settings.session_timeout_ms // 6)

    # Start-up

    @property
    def _is_looking_up(self) -> bool:
        return self.state in (
            ConsumerState.CONNECTING_TO_BROKER,
            ConsumerState.FETCHING_METADATA,
        )

    def _connect_to_broker(self, outcome: Outcome) -> None:
        """Connect to the next broker of the list, in turn."""
        broker = self.brokers[self._next_broker % len(self.brokers)]
        self._next_broker += 1
        self.state = ConsumerState.CONNECTING_TO_BROKER
        outcome.arm_timer(ConsumerTimer.SILENCE, self.settings.session_timeout_ms)
        outcome.act(ConnectBroker(broker=broker))

    def _on_metadata(self, outcome: Outcome, response: ClusterMetadataResponse) -> None:
        outcome.act(DisconnectBroker())
        by_id = {broker.id: broker for broker in response.brokers_info}
        coordinator = by_id.get(response.coordinator_id)
        if response.error_code or coordinator is None:
            self._back_off(outcome)
            return
        self._learn_brokers(response.brokers_info)
        self.state = ConsumerState.CONNECTING_TO_COORDINATOR
        outcome.act(ConnectCoordinator(broker=coordinator))

    def _learn_brokers(self, brokers: Iterable[BrokerAddress]) -> None:
        """Use the current brokers, and after them those of the user's list."""
        found = {(each.host, each.port): each for each in brokers}
        for each in self.settings.bootstrap_brokers:
            found.setdefault((each.host, each.port), each)
        self.brokers = tuple(found.values())

    def _register(self, outcome: Outcome) -> None:
        settings = self.settings
        self.state = ConsumerState.REGISTERING
        self._arm_stall_timer(outcome)
        outcome.send(
            RegisterConsumerRequest(
                group_id=settings.group_id,
                consumer_id=settings.consumer_id,
                topic_count=self._topic_count,
                auto_commit=settings.auto_commit,
                auto_offset_rest=settings.auto_offset_reset,
                session_timeout_ms=settings.session_timeout_ms,
            )
        )

    def _on_registered(self, outcome: Outcome, error: int) -> None:
        if error in _FATAL:
            outcome.act(ReportError(reason=PushError(error).name))
            self._close(outcome)
        elif error:
            self._back_off(outcome)
        else:
            self.state = ConsumerState.REGISTERED

    def _back_off(self, outcome: Outcome) -> None:
        """Close all connections, and try the next broker after a time."""
        outcome.act(DisconnectBroker())
        outcome.act(Disconnect())
        outcome.cancel_timer(ConsumerTimer.SILENCE)
        outcome.cancel_timer(ConsumerTimer.STALL)
        self.state = ConsumerState.BACKING_OFF
        outcome.arm_timer(ConsumerTimer.RETRY, self.settings.retry_backoff_ms)

    # Loss of the coordinator

    def _on_disconnected(self, outcome: Outcome) -> None:
        self._give_up_partitions(outcome)
        if self._is_closing:
            self._close(outcome)
        else:
            self._back_off(outcome)

    def _reconnect(self, outcome: Outcome) -> None:
        """Stop the fetchers, close the connection and start up again."""
        self._give_up_partitions(outcome)
        outcome.act(Disconnect())
        if self._is_closing:
            self._close(outcome)
        else:
            self._connect_to_broker(outcome)

    def _give_up_partitions(self, outcome: Outcome) -> None:
        self._stop_reading(outcome)
        self.owned = frozenset()
        self._replies.clear()
        self._have_fetchers_failed = False
        outcome.cancel_timer(ConsumerTimer.STALL)

    def _stop_reading(self, outcome: Outcome) -> None:
        if self._is_reading:
            outcome.act(StopReading())
            self._is_reading = False

    # Requests of the coordinator

    def _on_message(self, outcome: Outcome, message: Message) -> None:
        self._silence_end_ms = outcome.at_ms + self.settings.session_timeout_ms
        outcome.arm_timer(ConsumerTimer.SILENCE, self.settings.session_timeout_ms)
        match message:
            case RegisterConsumerResponse(error_code=error):
                self._on_registered(outcome, error)
            case PingRequest():
                self._on_ping(outcome)
            case StopFetcherRequest():
                self._stop_reading(outcome)
                self._have_fetchers_failed = False
                self.state = ConsumerState.REGISTERED
                self._reply(outcome, StopFetcherResponse)
            case StartFetcherRequest():
                self._start_fetchers(outcome, message)
            case _:
                raise AssertionError(f"unexpected message {message}")

    def _on_ping(self, outcome: Outcome) -> None:
        """Answer a ping. A consumer that shuts down waits for the ping after its offsets."""
        if self._has_reported_end:
            self._close(outcome)
        elif self._have_fetchers_failed and not self._is_closing:
            self._reconnect(outcome)
        else:
            self._reply(outcome, PingResponse)
            if self._is_closing and self.settings.auto_commit:
                self._has_reported_end = True
            elif self._is_closing:
                self._close(outcome)

    def _reply(self, outcome: Outcome, response: type[PingResponse | StopFetcherResponse]) -> None:
        """Answer with the consumed offsets if the consumer commits."""
        if self.settings.auto_commit:
            self._replies.append(response)
            outcome.act(CommitDue(partitions=self.owned))
            return
        outcome.send(response(consumer_id=self.settings.consumer_id))
        if response is StopFetcherResponse:
            self.owned = frozenset()

    def _reply_with_offsets(self, outcome: Outcome, positions: dict[TopicPartition, int]) -> None:
        if not self._replies:
            return  # the connection was lost
        response = self._replies.popleft()
        outcome.send(
            response(
                consumer_id=self.settings.consumer_id,
                offset_info=[
                    PartitionOffset(
                        topic=each.topic, partition=self._partition_names[each], offset=offset
                    )
                    for each, offset in sorted(positions.items())
                ],
            )
        )
        if response is StopFetcherResponse:
            self.owned = frozenset()

    def _start_fetchers(self, outcome: Outcome, request: StartFetcherRequest) -> None:
        """Read the assigned partitions from the offsets of the request.

        A partition string without a number is an error in the response.
        """
        parts = [part for thread in request.ownership_info for part in thread.assigned_parts]
        offsets = {
            TopicPartition(part.topic, partition_number(part.partition)): part.offset
            for part in parts
        }
        self._learn_brokers(request.brokers_info)
        self._stop_reading(outcome)
        self._have_fetchers_failed = False
        if any(each.partition < 0 for each in offsets):
            self.owned = frozenset()
            self.state = ConsumerState.REGISTERED
            outcome.send(
                StartFetcherResponse(
                    error_code=PushError.FETCHER_FAILED, consumer_id=self.settings.consumer_id
                )
            )
            return
        # A consumer that shuts down does not read them, so it has no offsets to report.
        self.owned = frozenset() if self._is_closing else frozenset(offsets)
        self._partition_names = {
            TopicPartition(part.topic, partition_number(part.partition)): part.partition
            for part in parts
        }
        self.state = ConsumerState.FETCHING
        if offsets and not self._is_closing:
            self._read(outcome, offsets)
        outcome.send(StartFetcherResponse(consumer_id=self.settings.consumer_id))

    def _read(self, outcome: Outcome, offsets: dict[TopicPartition, int]) -> None:
        reset = self._out_of_range & offsets.keys()
        self._out_of_range = frozenset()
        self._is_reading = True
        outcome.act(
            StartReading(offsets={each: at for each, at in offsets.items() if each not in reset})
        )
        if reset:
            outcome.act(ResetPositions(partitions=reset, to=self.settings.auto_offset_reset))

    # Shutdown

    def _on_leave_requested(self, outcome: Outcome) -> None:
        """Stop the fetchers, and wait for pings. Without a registration, close at once."""
        self._is_closing = True
        if self.state in _SERVED:
            self._stop_reading(outcome)
        else:
            self._close(outcome)

    def _close(self, outcome: Outcome) -> None:
        self._stop_reading(outcome)
        self.owned = frozenset()
        self.state = ConsumerState.CLOSED
        for timer in ConsumerTimer:
            outcome.cancel_timer(timer)
        outcome.act(DisconnectBroker())
        outcome.act(Disconnect())
