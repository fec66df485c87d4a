"""A state machine for Hypothesis: any order of requests, timers, losses and stops at a consumer of
the first design.
"""

from __future__ import annotations

from random import Random

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

from .coordinator_properties import walk_lengths, walk_seeds
from .member_properties import SESSION_MS, MemberMachine


class PushConsumerMachine(MemberMachine):
    """The consumer of the first design."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = "none"  # or "opening", "open", "asked"
        self.is_registering = self.is_served = False
        self.offset = 0
        self.assigned: set[TopicPartition] = set()  # while its fetchers may fail
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

    @initialize(
        auto_commit=st.booleans(),
        reset=st.sampled_from(("smallest", "largest")),
        choice=st.integers(0, 9),
        steps=st.sampled_from((1, 3, 4, 5, 5)),
        seed=walk_seeds,
        length=walk_lengths,
    )
    def start(
        self, auto_commit: bool, reset: str, choice: int, steps: int, seed: int, length: int
    ) -> None:
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
        self.walk(seed, length)
        self.proceed(choice, steps)

    def take_step(self, rng: Random) -> None:
        match rng.choices(range(6), (8, 2, 2, 1, 1, 1))[0]:
            case 0:
                super().take_step(rng)
            case 1:
                self.ask(rng.random() < 0.3)
            case 2 if self.is_served:
                numbers = set(rng.sample(range(4), rng.randrange(4)))
                self.start_fetchers(numbers, rng.choice((1, 7)), rng.choice(((1,), (3, 4))))
            case 3 if self.assigned:
                self.leave_range([rng.randrange(4)])
            case 4:
                self.lose_broker()
            case 5 if self.broker == "asked":
                self.answer_metadata(push.PushError.COORDINATOR_NOT_AVAILABLE, 3, (2, 3))

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
                self.assigned.clear()
            case machine.StartReading(offsets=offsets):
                self.assigned = set(offsets)
            case machine.Send(message=push.RegisterConsumerRequest()):
                self.is_registering = True

    def lose(self) -> None:
        if self.connection == "open":
            self.is_registering = self.is_served = False
            self.assigned.clear()
        super().lose()

    def open_broker(self, is_open: bool) -> None:
        self.broker = "open" if is_open else "none"
        event = events.BrokerConnected if is_open else events.BrokerDisconnected
        self.handle(event(at_ms=self.now_ms))

    @rule()
    def lose_broker(self) -> None:
        if self.broker in ("open", "asked"):
            self.broker = "none"
            self.handle(events.BrokerDisconnected(at_ms=self.now_ms))

    def answer_metadata(self, error: int, coordinator_id: int, ids: tuple[int, ...]) -> None:
        self.broker = "open"
        response = push.ClusterMetadataResponse(
            error_code=error, coordinator_id=coordinator_id, brokers_info=brokers(ids)
        )
        self.handle(events.BrokerResponseReceived(at_ms=self.now_ms, message=response))

    def answer_registration(self, error: int) -> None:
        self.is_registering, self.is_served = False, not error
        self.hear(push.RegisterConsumerResponse(error_code=error))

    @rule(does_stop=st.booleans())
    def ask(self, does_stop: bool) -> None:
        if self.is_served:
            ping = push.PingRequest(consumer_id="c", num_retries=0)
            self.hear(push.StopFetcherRequest(consumer_id="c") if does_stop else ping)

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
        self.assigned.clear()
        for number in numbers:
            self.positions.pop(TopicPartition("t", number), None)
        self.hear(
            push.StartFetcherRequest(
                consumer_id="c", ownership_info=threads, brokers_info=brokers(ids)
            )
        )

    @precondition(lambda self: self.assigned)
    @rule(some=st.lists(st.integers(0, 3), min_size=1, max_size=2))
    def leave_range(self, some: list[int]) -> None:
        """Let the fetchers fail at some partitions, before or after they were stopped."""
        assigned = sorted(self.assigned)
        for which in some:
            failed = frozenset({assigned[which % len(assigned)]})
            self.handle(events.OffsetsOutOfRange(at_ms=self.now_ms, partitions=failed))

    def do_step(self, choice: int) -> bool:
        if self.broker == "opening":
            self.open_broker(choice < 8)
        elif self.broker == "asked":
            error = push.PushError.COORDINATOR_NOT_AVAILABLE if choice == 9 else 0
            coordinator_id = {7: 2, 8: 9}.get(choice, 3)
            self.answer_metadata(error, coordinator_id, ((2, 3), (3, 2), (1, 2, 3))[choice % 3])
        elif self.connection == "opening":
            self.connect(choice < 8)
        elif self.is_registering:
            errors = {
                7: push.PushError.DUPLICATE_CONSUMER_ID,
                8: push.PushError.INVALID_SESSION_TIMEOUT,
                9: push.PushError.INVALID_REGISTRATION,
            }
            self.answer_registration(errors.get(choice, 0))
            if choice == 0:
                self.start_fetchers({0, 1}, 1, (2, 3))
        else:
            return False
        return True

    def cooperate(self) -> None:
        super().cooperate()
        if self.is_served and self.now_ms % 3_000 < 100:
            self.ask(False)

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
