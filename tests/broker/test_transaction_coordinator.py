"""The transaction coordinator on partitions in memory: markers, failures and restarts."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from partage.broker.apis.transaction_descriptions import describe_transactions
from partage.broker.clock import Clock
from partage.broker.coordination.group_coordinator import GroupCoordinator
from partage.broker.coordination.shard_host import ShardHost
from partage.broker.coordination.state_store import LocalStore
from partage.broker.topics import log_manager
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.log_writer import LogWriter
from partage.broker.topics.partition import AppendOutcome, Partition
from partage.broker.topics.producer_ids import ProducerIdManager
from partage.broker.transactions import (
    marker_writer,
    transaction_coordinator,
    waiting_requests,
)
from partage.broker.transactions.local_markers import LocalMarkers, PartitionMarker
from partage.broker.transactions.local_transaction_coordinator import LocalTransactionCoordinator
from partage.broker.transactions.marker_writer import MarkerWriter
from partage.log.catalogue.topic_catalogue import CatalogueChange
from partage.log.disk import Disk
from partage.log.memory_disk import MemoryDisk
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.model.settings import BrokerSettings, GroupSettings, TransactionSettings
from partage.model.topic_partition import TopicPartition
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.store.transaction_log import TOPIC
from partage.transactions.events import VERSION_0, VERSION_2
from partage.transactions.replies import ProducerReply
from partage.transactions.states import TransactionState
from partage.wire.apis.describe_transactions import (
    DESCRIBE_TRANSACTIONS,
    DescribeTransactionsRequest,
)
from polled_conditions import eventually_async

from .transactional_world import Inbound

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SETTINGS = TransactionSettings(partitions=3)
WITHIN_S = 60


def fail_test(error: BaseException) -> None:
    raise error


class CoordinatorFixture:
    """A coordinator with topic ``t``; `restart` opens the same disk again, as after a crash."""

    def __init__(self) -> None:
        self._disk = MemoryDisk()

    async def open(self) -> CoordinatorFixture:
        clock, disk = Clock(), self._disk
        writer = LogWriter(disk, sync=False, inline=True)
        settings = BrokerSettings(offsets_partitions=1)
        self.log_manager = LogManager(disk, writer, clock, settings, fail_test)
        await self.log_manager.open()
        if self.log_manager.topic("t") is None:
            await self.log_manager.create("t", 2, {})
        host = ShardHost(
            "groups",
            LocalStore(self.log_manager, disk, 0),
            GroupSettings(),
            clock,
            lambda event: None,
        )
        host.load()
        self.groups = GroupCoordinator([host])
        self.coordinator = LocalTransactionCoordinator(
            self.log_manager,
            disk,
            SETTINGS,
            clock,
            ProducerIdManager(disk),
            MarkerWriter(LocalMarkers(self.log_manager, clock, self.groups.hosts)),
        )
        self.coordinator.open()
        await self.coordinator.wait_loaded()
        return self

    async def restart(self) -> None:
        self.close()
        await self.open()

    def close(self) -> None:
        self.coordinator.close()
        self.groups.close()

    def partition(self, where: TopicPartition) -> Partition:
        partition = self.log_manager.partition(*where)
        assert partition is not None
        return partition

    async def init(self, transactional_id: str = "x") -> ProducerReply:
        """Return the next id and epoch; retry as a client does."""
        await self.coordinator.create_topic()
        while True:
            reply = await reply_of(
                lambda done: self.coordinator.init_producer(transactional_id, 1_000, -1, -1, done)
            )
            if reply.error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                assert isinstance(reply, ProducerReply)
                return reply
            await asyncio.sleep(0)

    async def begin(self, *partitions: TopicPartition, adds: bool = True) -> ProducerReply:
        """Begin a transaction with the partitions."""
        producer = await self.init()
        errors = await self.admit(producer, *partitions, adds=adds)
        assert set(errors.values()) == {ErrorCode.NONE}
        return producer

    async def admit(
        self, producer: ProducerReply, *partitions: TopicPartition, adds: bool
    ) -> dict[TopicPartition, ErrorCode]:
        result: dict[TopicPartition, ErrorCode] = await reply_of(
            lambda done: self.coordinator.admit(
                "x", producer.producer_id, producer.epoch, partitions, adds=adds, done=done
            )
        )
        return result

    async def end(
        self, producer: ProducerReply, *, is_commit: bool = True, version: int = VERSION_2
    ) -> ProducerReply:
        reply: ProducerReply = await reply_of(
            lambda done: self.coordinator.end_transaction(
                "x",
                producer.producer_id,
                producer.epoch,
                is_commit=is_commit,
                version=version,
                done=done,
            )
        )
        return reply

    async def state(self) -> TransactionState:
        record = (await self.coordinator.describe("x")).record
        assert record is not None
        return record.state

    async def reach(self, state: TransactionState) -> None:
        """Wait until the transaction is in a state."""
        host = self.coordinator.host_of("x")
        await eventually_async(
            lambda: host.shard and host.shard.transactions["x"].record.state is state
        )


async def reply_of(ask: Callable[[Callable[[Any], None]], None]) -> Any:
    """Return the reply of a request with a callback."""
    reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    ask(reply.set_result)
    return await reply


def run(scenario: Callable[[CoordinatorFixture], Coroutine[Any, Any, None]]) -> None:
    async def running() -> None:
        fixture = await CoordinatorFixture().open()
        try:
            await scenario(fixture)
        finally:
            fixture.close()

    asyncio.run(running())


@pytest.fixture(autouse=True)
def retries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_writer, "_RETRY_AFTER_S", 0.001)
    monkeypatch.setattr(marker_writer, "_RETRY_AFTER_MAX_S", 0.001)


@pytest.mark.parametrize("version", [VERSION_0, VERSION_2])
def test_commit_writes_one_marker_to_each_partition(version: int) -> None:
    async def scenario(its: CoordinatorFixture) -> None:
        producer = await its.begin(T0, T1)
        ended = await its.end(producer, version=version)
        assert ended.epoch == producer.epoch + (version == VERSION_2)
        await its.reach(TransactionState.COMPLETE_COMMIT)
        assert [its.partition(where).log.end_offset for where in (T0, T1)] == [1, 1]

    run(scenario)


@pytest.mark.parametrize("version", [VERSION_0, VERSION_2])
def test_next_transaction_waits_for_markers_of_last(version: int) -> None:
    """Clients begin it when EndTxn is answered. A refusal would cost them a back-off."""

    async def scenario(its: CoordinatorFixture) -> None:
        producer = await its.begin(T0)
        its.coordinator.markers.hold(hold_all)
        ended = await its.end(producer, version=version)
        following = producer if version == VERSION_0 else ended
        begun = asyncio.ensure_future(its.admit(following, T0, T1, adds=True))
        another = asyncio.ensure_future(its.admit(following, T1, adds=True))
        zombie = asyncio.ensure_future(
            its.admit(ProducerReply(producer_id=99, epoch=0), T0, adds=True)
        )
        await turns()
        assert not begun.done()
        its.coordinator.markers.release(hold_all)
        assert await begun == {T0: ErrorCode.NONE, T1: ErrorCode.NONE}
        assert await another == {T1: ErrorCode.NONE}
        assert await zombie == {T0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        assert await its.state() is TransactionState.ONGOING

    run(scenario)


def test_next_transaction_is_refused_after_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_requests, "WAIT_MAX_S", 0.001)

    async def scenario(its: CoordinatorFixture) -> None:
        producer = await its.begin(T0)
        its.coordinator.markers.hold(hold_all)
        ended = await its.end(producer)
        refused = await its.admit(ended, T0, adds=True)
        assert refused == {T0: ErrorCode.CONCURRENT_TRANSACTIONS}
        monkeypatch.setattr(waiting_requests, "WAIT_MAX_S", 60)
        its.coordinator.markers.release(hold_all)
        assert await its.admit(ended, T0, adds=True) == {T0: ErrorCode.NONE}

    run(scenario)


def test_request_of_another_broker_does_not_wait() -> None:
    async def scenario(its: CoordinatorFixture) -> None:
        producer = await its.begin(T0)
        its.coordinator.markers.hold(hold_all)
        ended = await its.end(producer)
        identity = ("x", ended.producer_id, ended.epoch)
        refused = await reply_of(
            lambda done: its.coordinator.add_partitions(
                *identity, [T0], VERSION_2, done, may_wait=False
            )
        )
        assert refused == {T0: ErrorCode.CONCURRENT_TRANSACTIONS}

    run(scenario)


def test_waiting_transaction_is_refused_when_state_is_discarded() -> None:
    async def scenario(its: CoordinatorFixture) -> None:
        producer = await its.begin(T0)
        its.coordinator.markers.hold(hold_all)
        ended = await its.end(producer)
        waiting = asyncio.ensure_future(its.admit(ended, T0, adds=True))
        await turns()
        its.coordinator.host_of("x").resign()
        assert await waiting == {T0: ErrorCode.NOT_COORDINATOR}

    run(scenario)


def hold_all(where: TopicPartition) -> bool:
    return True


async def turns(count: int = 10) -> None:
    """Let the event loop run some turns; all writes here are in memory."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_large_transaction_is_completed_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_writer, "_MARKERS_PER_TURN", 1)

    async def scenario(its: CoordinatorFixture) -> None:
        await its.log_manager.create("u", 20, {})
        partitions = [TopicPartition("u", number) for number in range(20)]
        producer = await its.begin(*partitions)
        await its.end(producer)
        assert its.partition(partitions[-1]).log.end_offset == 0
        await its.reach(TransactionState.COMPLETE_COMMIT)
        assert {its.partition(where).log.end_offset for where in partitions} == {1}

    run(scenario)


def test_topic_is_created_at_first_use() -> None:
    async def scenario(its: CoordinatorFixture) -> None:
        assert its.log_manager.topic(TOPIC) is None
        unknown = ProducerReply(producer_id=0, epoch=0)
        for adds in (False, True):
            errors = await its.admit(unknown, T0, adds=adds)
            assert errors == {T0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        assert (await its.end(unknown)).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert (await its.coordinator.describe("x")).error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        every = (frozenset[str](), frozenset[int](), -1, None)
        assert (await its.coordinator.list_transactions(*every)).records == ()
        assert all(
            await asyncio.gather(its.coordinator.create_topic(), its.coordinator.create_topic())
        )
        topic = its.log_manager.topic(TOPIC)
        assert topic is not None
        assert topic.partition_count == len(its.coordinator.hosts) == SETTINGS.partitions

    run(scenario)


def test_partitions_are_verified() -> None:
    async def scenario(its: CoordinatorFixture) -> None:
        producer = await its.begin(T0)
        errors = await its.admit(producer, T0, T1, adds=False)
        assert errors == {T0: ErrorCode.NONE, T1: ErrorCode.TRANSACTION_ABORTABLE}

    run(scenario)


def test_marker_of_deleted_partition_is_not_needed() -> None:
    async def scenario(its: CoordinatorFixture) -> None:
        await its.log_manager.create("u", 1, {})
        producer = await its.begin(T0, TopicPartition("u", 0))
        await its.log_manager.delete("u")
        await its.end(producer)
        await its.reach(TransactionState.COMPLETE_COMMIT)
        assert its.partition(T0).log.end_offset == 1

    run(scenario)


def test_marker_does_not_overtake_an_admission_that_was_decided_before() -> None:
    """One append holds all three decisions; the first reply starts a further request."""

    async def scenario(its: CoordinatorFixture) -> None:
        producer = await its.begin(T0)
        who = producer.producer_id, producer.epoch
        marker_count_at_admission: list[int] = []

        def ask_more(errors: object) -> None:
            its.coordinator.verify_partitions("x", *who, [T0], lambda errors: None)

        def on_admitted(errors: object) -> None:
            marker_count_at_admission.append(its.partition(T0).log.end_offset)

        its.coordinator.admit("x", *who, [T1], adds=True, done=ask_more)
        its.coordinator.admit("x", *who, [T0], adds=False, done=on_admitted)
        await its.end(producer)
        await its.reach(TransactionState.COMPLETE_COMMIT)
        assert marker_count_at_admission == [0]
        assert its.partition(T0).log.end_offset == 1

    run(scenario)


def test_marker_with_the_epoch_of_an_administrator_does_not_block_later_ones() -> None:
    async def scenario(its: CoordinatorFixture) -> None:
        producer = await its.begin(T0)
        appended = its.partition(T0).append_marker(
            producer.producer_id,
            producer.epoch,
            5,
            is_commit=False,
            transaction_version=VERSION_0,
            at_ms=0,
            done=lambda error: None,
        )
        assert not isinstance(appended, Refusal)
        await its.end(producer)
        await its.reach(TransactionState.COMPLETE_COMMIT)
        assert its.partition(T0).log.end_offset == 2

    run(scenario)


def test_describing_many_ids_lets_other_work_run() -> None:
    async def scenario(its: CoordinatorFixture) -> None:
        await its.init()
        request = DescribeTransactionsRequest(transactional_ids=[f"id-{n}" for n in range(2_000)])
        inbound = Inbound(DESCRIBE_TRANSACTIONS, request, 0)
        describing = asyncio.ensure_future(describe_transactions(inbound, its.coordinator))
        turns = 0
        while not describing.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 7
        states = inbound.response.transaction_states
        assert {each.error_code for each in states} == {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}
        assert len(states) == 2_000

    run(scenario)


def test_durable_times_follow_system_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The monotonic clock stops while the machine is suspended; the start time must not be old."""

    async def scenario(its: CoordinatorFixture) -> None:
        now_ns = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: now_ns() + 3_600_000_000_000)
        before_ms = Clock().wall_ms()
        await its.begin(T0)
        described = await its.coordinator.describe("x")
        assert described.record is not None
        assert described.record.state is TransactionState.ONGOING
        assert before_ms <= described.record.started_ms <= Clock().wall_ms()

    run(scenario)


def test_listing_many_ids_lets_other_work_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_coordinator, "_LISTED_PER_TURN", 2)

    async def scenario(its: CoordinatorFixture) -> None:
        names = {f"id-{n}" for n in range(40)}
        for name in names:
            await its.init(name)
        turns = 0
        every = frozenset[str](), frozenset[int](), -1, None
        listing = asyncio.ensure_future(its.coordinator.list_transactions(*every))
        while not listing.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 40 / 2
        reply = await listing
        assert reply.error is ErrorCode.NONE
        assert sorted(each.transactional_id for each in reply.records) == sorted(names)

    run(scenario)


def test_marker_of_failed_partition_is_repeated() -> None:
    async def scenario(its: CoordinatorFixture) -> None:
        producer = await its.begin(T0, T1)
        its.partition(T0).fail(OSError("the disk failed"))
        await its.end(producer)
        await eventually_async(lambda: its.partition(T1).log.end_offset)
        assert await its.state() is TransactionState.PREPARE_COMMIT
        await its.log_manager.reopen(*T0)
        await its.reach(TransactionState.COMPLETE_COMMIT)
        assert its.partition(T0).log.end_offset == 1

    run(scenario)


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("version", [VERSION_0, VERSION_2])
def test_crash_between_markers_ends_as_decided(is_commit: bool, version: int) -> None:
    """The marker of one partition exists already, and the one of the other does not."""

    async def scenario(its: CoordinatorFixture) -> None:
        producer = await its.begin(T0, T1)
        its.partition(T0).fail(OSError("the disk failed"))
        ended = await its.end(producer, is_commit=is_commit, version=version)
        assert ended.error is ErrorCode.NONE
        await eventually_async(lambda: its.partition(T1).log.end_offset)
        await its.restart()
        complete = TransactionState.COMPLETE_ABORT
        await its.reach(TransactionState.COMPLETE_COMMIT if is_commit else complete)
        assert its.partition(T0).log.end_offset == 1
        again = await its.end(ended, is_commit=is_commit, version=VERSION_0)
        assert (again.error, again.epoch) == (ErrorCode.NONE, ended.epoch)

    run(scenario)


def test_crash_keeps_open_transaction() -> None:
    async def scenario(its: CoordinatorFixture) -> None:
        producer = await its.begin(T0)
        await its.restart()
        assert await its.state() is TransactionState.ONGOING
        await its.end(producer)
        await its.reach(TransactionState.COMPLETE_COMMIT)

    run(scenario)


def test_failed_log_reloads_shard() -> None:
    async def scenario(its: CoordinatorFixture) -> None:
        producer = await its.begin(T0)
        (held,) = [
            where
            for index in range(SETTINGS.partitions)
            if its.partition(where := TopicPartition(TOPIC, index)).log.end_offset
        ]
        its.partition(held).fail(OSError("the disk failed"))
        ended = await its.end(producer)
        assert ended.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        loading = await its.end(producer)
        assert loading.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await its.coordinator.wait_loaded()
        assert await its.state() is TransactionState.ONGOING
        assert (await its.end(producer)).error is ErrorCode.NONE
        await its.reach(TransactionState.COMPLETE_COMMIT)

    run(scenario)


def test_marker_of_offsets_goes_to_the_group_coordinator() -> None:
    async def scenario(its: CoordinatorFixture) -> None:
        offsets = TopicPartition(OFFSETS_TOPIC, 0)
        producer = await its.begin(offsets)
        await its.end(producer)
        await its.reach(TransactionState.COMPLETE_COMMIT)
        assert its.partition(offsets).log.end_offset == 1

    run(scenario)


def test_new_producer_fences_open_transaction() -> None:
    async def scenario(its: CoordinatorFixture) -> None:
        producer = await its.begin(T0)
        successor = await its.init()
        assert successor.epoch == producer.epoch + 2
        assert its.partition(T0).log.end_offset == 1
        fenced = await its.admit(producer, T1, adds=True)
        assert fenced == {T1: ErrorCode.PRODUCER_FENCED}

    run(scenario)


def test_marker_waits_until_deletion_of_its_topic_is_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a crash before that, the topic would exist again, with an open transaction."""
    may_delete = threading.Event()
    apply = log_manager.apply_change

    def held_back(disk: Disk, change: CatalogueChange) -> None:
        may_delete.wait(WITHIN_S)
        apply(disk, change)

    async def scenario(its: CoordinatorFixture) -> None:
        await its.log_manager.create("u", 1, {})
        producer = await its.begin(T0, TopicPartition("u", 0))
        monkeypatch.setattr(log_manager, "apply_change", held_back)
        deletion = asyncio.ensure_future(its.log_manager.delete("u"))
        await eventually_async(lambda: its.log_manager.topic("u") is None)
        await its.end(producer)
        await eventually_async(lambda: its.partition(T0).log.end_offset)
        assert await its.state() is TransactionState.PREPARE_COMMIT
        may_delete.set()
        await deletion
        await its.reach(TransactionState.COMPLETE_COMMIT)

    run(scenario)


def test_overtaken_marker_waits_for_the_later_one_on_a_busy_partition() -> None:
    async def scenario(its: CoordinatorFixture) -> None:
        partition = its.partition(T0)

        def append(epoch: int) -> None:
            partition.append_marker(
                9, epoch, 0, is_commit=True, transaction_version=0, at_ms=0, done=lambda error: None
            )

        results: list[ErrorCode] = []
        append(5)
        assert not partition.log.high_watermark
        markers = LocalMarkers(its.log_manager, Clock(), its.groups.hosts)
        markers.append(PartitionMarker(9, 1, 0, True, 0), T0, results.append)
        assert not results
        for turn in range(10):
            append(6 + turn)  # some batch is never durable yet
            await asyncio.sleep(0)
        assert results == [ErrorCode.INVALID_PRODUCER_EPOCH]

    run(scenario)


def test_exception_while_a_marker_is_appended_is_retried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(its: CoordinatorFixture) -> None:
        producer = await its.begin(T0)
        append = Partition.append_marker
        attempts: list[object] = []

        def failing(self: Partition, *args: Any, **options: Any) -> AppendOutcome:
            attempts.append(self)
            if len(attempts) < 3:
                raise RuntimeError("a bug")
            return append(self, *args, **options)

        monkeypatch.setattr(Partition, "append_marker", failing)
        await its.end(producer)
        await its.reach(TransactionState.COMPLETE_COMMIT)
        assert len(attempts) == 3

    run(scenario)
    caplog.clear()
