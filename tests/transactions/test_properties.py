"""Random producers, crashes and failures: no transaction has two results, and none is forgotten."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from partage.model.settings import TransactionSettings
from partage.model.topic_partition import TopicPartition
from partage.transactions.events import (
    VERSION_0,
    VERSION_2,
    AddPartitions,
    EndTransaction,
    InitProducer,
    TransactionRequest,
    VerifyPartitions,
)
from partage.transactions.outcome import MarkersToWrite
from partage.transactions.records import TransactionRecord
from partage.transactions.replies import ProducerReply, TransactionReply
from partage.transactions.states import ENDED, TransactionState

from .harness import Harness

SETTINGS = TransactionSettings(id_expiration_ms=100_000, expiry_check_interval_ms=30_000)
PARTITIONS = [TopicPartition("t", number) for number in range(3)]
TIMEOUT_MS = 15_000

names = st.sampled_from("pqr")
ids = st.sampled_from("xy")
versions = st.sampled_from((VERSION_0, VERSION_2))
some_partitions = st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=3, unique=True)


class Producer:
    """The last id and epoch that a producer received for one transactional id."""

    def __init__(self) -> None:
        self.identity = (-1, -1)
        self.version = VERSION_0


class TransactionMachine(RuleBasedStateMachine):
    """One shard with three producers that fence each other."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness(SETTINGS)
        self.producers = {(name, i): Producer() for name in "pqr" for i in "xy"}
        self.askers: dict[object, Producer] = {}
        #: Producer ids and epochs that InitProducerId has granted, with their producers.
        self.granted: dict[tuple[int, int], Producer] = {}
        self.seen_orders: list[MarkersToWrite] = []
        self.tickets = 0

    def ask(self, producer: Producer, request: TransactionRequest) -> None:
        self.askers[request.reply_to] = producer
        self.harness.handle(request)
        self.observe()

    def ticket(self) -> int:
        self.tickets += 1
        return self.tickets

    def observe(self) -> None:
        for request, reply in self.harness.replies:
            self.on_reply(request, reply)
        self.harness.replies.clear()
        for order in self.harness.orders:
            if not any(order is seen for seen in self.seen_orders):
                self.seen_orders.append(order)
                record = self.last_durable(order.transactional_id)
                assert record is not None
                state = TransactionState.PREPARE_ABORT
                if order.is_commit:
                    state = TransactionState.PREPARE_COMMIT
                assert record.state is state, "a marker contradicts the durable decision"
                assert (record.producer_id, record.epoch) == (order.producer_id, order.epoch)

    def on_reply(self, request: TransactionRequest, reply: TransactionReply) -> None:
        producer = self.askers[request.reply_to]
        if not isinstance(reply, ProducerReply) or reply.error:
            return
        identity = (reply.producer_id, reply.epoch)
        if isinstance(request, InitProducer):
            is_repeated = request.producer_id >= 0 and request.epoch != reply.epoch
            if identity in self.granted and not is_repeated:
                assert self.granted[identity] is producer, "two producers have the same epoch"
            self.granted[identity] = producer
        elif isinstance(request, EndTransaction):
            self.check_result(request)
        producer.identity = identity

    def check_result(self, request: EndTransaction) -> None:
        """Check that the log contains the result that a producer just received."""
        results = (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
        if request.is_commit:
            results = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
        states = [each.state for each in self.durable(request.transactional_id)]
        assert any(state in results for state in states)

    def durable(self, transactional_id: str) -> list[TransactionRecord]:
        return [
            record
            for record in self.harness.log
            if isinstance(record, TransactionRecord) and record.transactional_id == transactional_id
        ]

    # Requests.

    @rule(name=names, transactional_id=ids, version=versions, is_recovery=st.booleans())
    def init(self, name: str, transactional_id: str, version: int, is_recovery: bool) -> None:
        producer = self.producers[name, transactional_id]
        producer.version = version
        producer_id, epoch = producer.identity if is_recovery else (-1, -1)
        request = InitProducer(
            at_ms=self.harness.now_ms,
            reply_to=self.ticket(),
            transactional_id=transactional_id,
            timeout_ms=TIMEOUT_MS,
            producer_id=producer_id,
            epoch=epoch,
            fresh_producer_id=self.harness.fresh_id(),
        )
        self.ask(producer, request)

    @rule(
        name=names,
        transactional_id=ids,
        partitions=some_partitions,
        kind=st.sampled_from((AddPartitions, AddPartitions, VerifyPartitions)),
    )
    def add(
        self,
        name: str,
        transactional_id: str,
        partitions: list[TopicPartition],
        kind: type[AddPartitions | VerifyPartitions],
    ) -> None:
        producer = self.producers[name, transactional_id]
        producer_id, epoch = producer.identity
        request = kind(
            at_ms=self.harness.now_ms,
            reply_to=self.ticket(),
            transactional_id=transactional_id,
            producer_id=producer_id,
            epoch=epoch,
            partitions=tuple(partitions),
        )
        self.ask(producer, request)

    @rule(name=names, transactional_id=ids, is_commit=st.booleans(), is_late=st.booleans())
    def end(self, name: str, transactional_id: str, is_commit: bool, is_late: bool) -> None:
        producer = self.producers[name, transactional_id]
        producer_id, epoch = producer.identity
        request = EndTransaction(
            at_ms=self.harness.now_ms,
            reply_to=self.ticket(),
            transactional_id=transactional_id,
            producer_id=producer_id,
            epoch=epoch - 1 if is_late and epoch > 0 else epoch,
            is_commit=is_commit,
            version=producer.version,
        )
        self.ask(producer, request)

    # The leaders.

    @precondition(lambda self: self.harness.orders)
    @rule(which=st.integers(0, 9), partitions=some_partitions)
    def mark(self, which: int, partitions: list[TopicPartition]) -> None:
        order = self.harness.orders[which % len(self.harness.orders)]
        reported = [each for each in partitions if each in order.partitions]
        self.report(order, reported)

    def report(self, order: MarkersToWrite, partitions: list[TopicPartition]) -> None:
        transaction = self.harness.shard.transactions[order.transactional_id]
        left = transaction.unmarked - set(partitions)
        if not left and order in self.harness.orders:
            self.harness.orders.remove(order)
        self.harness.report(order, partitions)
        self.observe()

    def last_durable(self, transactional_id: str) -> TransactionRecord | None:
        for record in reversed(self.harness.log):
            if record.transactional_id == transactional_id:
                return record if isinstance(record, TransactionRecord) else None
        return None

    # Failures and time.

    @rule(ms=st.sampled_from((1, 1_000, 9_000, 16_000, 31_000, 120_000)))
    def tick(self, ms: int) -> None:
        self.harness.tick(ms)
        self.observe()

    @rule(kind=st.sampled_from(("hold", "release", "fail", "crash")), kept=st.integers(0, 3))
    def trouble(self, kind: str, kept: int) -> None:
        match kind:
            case "hold":
                self.harness.is_held = True
            case "release":
                self.harness.release()
            case "fail":
                self.harness.fail()
            case "crash":
                self.harness.crash(kept)
        self.observe()

    # Final checks.

    def teardown(self) -> None:
        """Check that every transaction ends and that durable decisions were kept."""
        self.harness.release()
        self.harness.tick(TIMEOUT_MS + 2 * SETTINGS.abort_check_interval_ms)
        self.observe()
        for order in list(self.harness.orders):
            self.harness.report(order, order.partitions)
        self.observe()
        for transaction in self.harness.shard.transactions.values():
            assert transaction.record.state in ENDED
        self.check_decisions()
        assert not self.harness.tickets, "a request has no reply"

    def check_decisions(self) -> None:
        """Check in the durable log that each decision is followed by its completion only."""
        before: dict[str, TransactionRecord] = {}
        for record in self.harness.log:
            if not isinstance(record, TransactionRecord):
                assert before.pop(record.transactional_id).state in ENDED
                continue
            last = before.get(record.transactional_id)
            if last is not None and last.state is TransactionState.PREPARE_COMMIT:
                assert record.state is TransactionState.COMPLETE_COMMIT
            if last is not None and last.state is TransactionState.PREPARE_ABORT:
                assert record.state is TransactionState.COMPLETE_ABORT
            before[record.transactional_id] = record


LONG = os.environ.get("PARTAGE_PROPERTIES") == "long"

TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(
    max_examples=int(os.environ.get("PARTAGE_EXAMPLES", 5_000)) if LONG else 40,
    stateful_step_count=60 if LONG else 30,
    deadline=None,
    derandomize=not LONG,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
