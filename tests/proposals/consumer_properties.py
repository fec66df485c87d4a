"""A state machine for Hypothesis: any order of requests, timers, losses and stops at a consumer of
the first design.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from partage.model.topic_partition import TopicPartition
from partage.proposals import machine
from partage.proposals.broker_side import events
from partage.proposals.broker_side import messages as push
from partage.proposals.broker_side.consumer import ConsumerState, PushConsumer
from partage.proposals.broker_side.settings import PushConsumerSettings
from partage.proposals.broker_side.topic_count import static_topic_count
from partage.proposals.designs.checked import CheckedMember

from .member_properties import SESSION_MS, MemberMachine, successes


class PushConsumerMachine(MemberMachine):
    """The consumer of the first design."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = "none"  # or "opening", "open", "asked"
        self.is_registering = self.is_served = False
        self.offset = 0
        self.settings = PushConsumerSettings(
            bootstrap_brokers=tuple(
                push.BrokerAddress(id=number, host=f"h{number}", port=9092) for number in (1, 2)
            ),
            group_id="g",
            consumer_id="c",
            topic_count=static_topic_count({"t"}),
            session_timeout_ms=SESSION_MS,
            retry_backoff_ms=300,
        )

    @initialize(auto_commit=st.booleans(), reset=st.sampled_from(("smallest", "largest")))
    def start(self, auto_commit: bool, reset: str) -> None:
        settings = self.settings
        self.settings = PushConsumerSettings(
            bootstrap_brokers=settings.bootstrap_brokers,
            group_id=settings.group_id,
            consumer_id=settings.consumer_id,
            topic_count=settings.topic_count,
            session_timeout_ms=settings.session_timeout_ms,
            retry_backoff_ms=settings.retry_backoff_ms,
            auto_commit=auto_commit,
            auto_offset_reset=reset,
        )
        self.inner = PushConsumer(self.settings)
        self.member = CheckedMember(self.inner)
        self.handle(machine.Started(at_ms=self.now_ms))

    def perform(self, action: machine.Action) -> None:
        super().perform(action)
        match action:
            case events.ConnectBroker():
                self.broker = "opening"
            case events.SendToBroker():
                assert self.broker == "open", f"{action} without a connection"
                self.broker = "asked"
            case events.DisconnectBroker():
                self.broker = "none"
            case machine.Connect() | machine.Disconnect():
                self.is_registering = self.is_served = False
            case machine.Send(message=push.RegisterConsumerRequest()):
                self.is_registering = True

    def lose(self) -> None:
        self.is_registering = self.is_served = False
        super().lose()

    @precondition(lambda self: self.broker == "opening")
    @rule(is_open=successes)
    def open_broker(self, is_open: bool) -> None:
        self.broker = "open" if is_open else "none"
        event = events.BrokerConnected if is_open else events.BrokerDisconnected
        self.handle(event(at_ms=self.now_ms))

    @precondition(lambda self: self.broker in ("open", "asked"))
    @rule()
    def lose_broker(self) -> None:
        self.broker = "none"
        self.handle(events.BrokerDisconnected(at_ms=self.now_ms))

    @precondition(lambda self: self.broker == "asked")
    @rule(
        error=st.sampled_from((0, 0, 0, push.PushError.COORDINATOR_NOT_AVAILABLE)),
        coordinator_id=st.sampled_from((2, 3, 3, 9)),
        ids=st.sampled_from(((2, 3), (3, 2), (1, 2, 3))),
    )
    def answer_metadata(self, error: int, coordinator_id: int, ids: tuple[int, ...]) -> None:
        self.broker = "open"
        response = push.ClusterMetadataResponse(
            error_code=error, coordinator_id=coordinator_id, brokers_info=brokers(ids)
        )
        self.handle(events.BrokerResponseReceived(at_ms=self.now_ms, message=response))

    @precondition(lambda self: self.is_registering)
    @rule(
        error=st.sampled_from(
            (
                0,
                0,
                0,
                push.PushError.DUPLICATE_CONSUMER_ID,
                push.PushError.INVALID_SESSION_TIMEOUT,
                push.PushError.INVALID_REGISTRATION,
            )
        )
    )
    def answer_registration(self, error: int) -> None:
        self.is_registering, self.is_served = False, not error
        self.hear(push.RegisterConsumerResponse(error_code=error))

    @precondition(lambda self: self.is_served)
    @rule()
    def ping(self) -> None:
        self.hear(push.PingRequest(consumer_id="c", num_retries=0))

    @precondition(lambda self: self.is_served)
    @rule()
    def stop(self) -> None:
        self.hear(push.StopFetcherRequest(consumer_id="c"))

    @precondition(lambda self: self.is_served)
    @rule(
        numbers=st.sets(st.integers(0, 3), max_size=3),
        broker_id=st.sampled_from((1, 7)),
        ids=st.sampled_from(((1,), (3, 4), (2, 5))),
    )
    def start_fetchers(self, numbers: set[int], broker_id: int, ids: tuple[int, ...]) -> None:
        self.offset += 100
        threads = [
            push.ThreadOwnership(
                consumer_thread_id=f"c-{number % 2}",
                assigned_parts=[
                    push.PartitionOffset(
                        topic="t", partition=f"{broker_id}-{number}", offset=self.offset + number
                    )
                ],
            )
            for number in sorted(numbers)
        ]
        for number in numbers:
            self.positions.pop(TopicPartition("t", number), None)
        self.hear(
            push.StartFetcherRequest(
                consumer_id="c", ownership_info=threads, brokers_info=brokers(ids)
            )
        )

    @precondition(lambda self: self.reading)
    @rule(which=st.integers(0, 3))
    def leave_range(self, which: int) -> None:
        """Let the fetchers fail at one of the partitions."""
        partition = sorted(self.reading)[which % len(self.reading)]
        self.handle(events.OffsetsOutOfRange(at_ms=self.now_ms, partitions=frozenset({partition})))

    def cooperate(self) -> None:
        for _ in range(10):
            if self.broker == "opening":
                self.open_broker(True)
            elif self.broker == "asked":
                self.answer_metadata(0, 3, (2, 3))
            elif self.connection == "opening":
                self.connect(True)
            elif self.is_registering:
                self.answer_registration(0)
                self.start_fetchers({0, 1}, 1, (2, 3))
            elif self.is_served and self.now_ms % 3_000 < 100:
                self.ping()
                return
            else:
                return

    def teardown(self) -> None:
        """Check that without faults the consumer reads its partitions, and can leave."""
        if not hasattr(self, "inner"):
            return
        self.now_ms += -self.now_ms % 100
        self.cooperate_for(SESSION_MS * 2)
        if self.is_served and not self.is_leaving:
            self.start_fetchers({0, 1}, 1, (2, 3))
            self.cooperate_for(6_000)
            assert self.inner.state is ConsumerState.FETCHING, f"{self.inner.state} at the end"
            assert len(self.reading) == 2, f"{self.reading} are read"
        if not self.is_leaving:
            assert self.is_served, f"{self.inner.state} without faults"
            self.handle(machine.LeaveRequested(at_ms=self.now_ms))
            self.cooperate_for(9_000)
        assert self.inner.state is ConsumerState.CLOSED, f"{self.inner.state} after the leave"
        assert (self.connection, self.broker) == ("none", "none"), "a connection stays open"


def brokers(ids: tuple[int, ...]) -> list[push.BrokerAddress]:
    """Return the addresses of brokers."""
    return [push.BrokerAddress(id=each, host=f"h{each}", port=9092) for each in ids]
