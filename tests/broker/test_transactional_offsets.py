"""TxnOffsetCommit requests: admission by the coordinator, and markers that arrive meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

import pytest

from partage.bridge.api_adapter import BrokerContext
from partage.broker.broker import Broker
from partage.broker.transactions.offset_commits import txn_offset_commit_handler
from partage.log.memory_disk import MemoryDisk
from partage.model.errors import ErrorCode
from partage.model.settings import BrokerSettings
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)
from partage.wire.types import Buffer

from .transactional_world import NONE, Inbound, ScriptedParticipation

T0 = TopicPartition("t", 0)
PRODUCER = (7, 3)  # id and epoch


class Response(Inbound):
    """A TxnOffsetCommit request that keeps its error."""

    def respond_encoded(self, buffers: Sequence[Buffer]) -> None:
        self.respond(self.build_response())

    async def error(self) -> ErrorCode:
        await self.answered.wait()
        ((partition,),) = [topic.partitions for topic in self.response.topics]
        return ErrorCode(partition.error_code)


class Group:
    """A broker in memory; the test plays the transaction coordinator of its groups."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.participation = ScriptedParticipation()
        self.is_topic_deleted = False
        self._handle = txn_offset_commit_handler(
            broker.coordinator,
            self.participation,
            BrokerContext(
                shard_count=1, has_partition=lambda topic, partition: not self.is_topic_deleted
            ),
        )

    def commit(self, offset: int, *, version: int = 3, epoch: int = PRODUCER[1]) -> Response:
        partition = TxnOffsetCommitPartition(
            partition_index=0, committed_offset=offset, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            producer_id=PRODUCER[0],
            producer_epoch=epoch,
            topics=[TxnOffsetCommitTopic(name="t", partitions=[partition])],
        )
        inbound = Response(TXN_OFFSET_COMMIT, request, version)
        self._handle(inbound)
        return inbound

    async def complete(self, *, epoch: int = PRODUCER[1], is_commit: bool = True) -> None:
        """Append a marker and wait until it is durable."""
        durable: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._broker.coordinator.complete_transaction(
            0, PRODUCER[0], epoch, 0, is_commit=is_commit, done=durable.set_result
        )
        assert await durable is NONE

    def answer(self, error: ErrorCode = NONE) -> None:
        self.participation.asked.pop(0).answer(error)

    @property
    def committed(self) -> int | None:
        shard = self._broker.coordinator.hosts[0].shard
        assert shard is not None
        found = shard.offsets.get("g", {}).get(("t", 0))
        return None if found is None else found.offset


class Story(Protocol):
    def __call__(self, group: Group) -> Coroutine[Any, Any, None]: ...


def run(story: Story) -> None:
    async def running() -> None:
        settings = BrokerSettings(offsets_partitions=1)
        broker = await Broker.start(MemoryDisk(), settings, host="127.0.0.1", port=0)
        try:
            await story(Group(broker))
        finally:
            await broker.stop()

    asyncio.run(running())


@pytest.mark.parametrize(("version", "adds"), [(0, False), (4, False), (5, True)])
def test_broker_adds_the_group_from_version_5_on(version: int, adds: bool) -> None:
    async def story(group: Group) -> None:
        sent = group.commit(5, version=version)
        (asked,) = group.participation.asked
        offsets = TopicPartition("__consumer_offsets", 0)
        assert asked[:4] == ("x", PRODUCER, [offsets], adds)
        group.answer()
        assert await sent.error() is NONE
        assert group.committed is None
        await group.complete()
        assert group.committed == 5

    run(story)


@pytest.mark.parametrize(
    ("version", "error", "shown"),
    [
        (3, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (4, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (3, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (5, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_error_of_the_coordinator_is_shown_by_version(
    version: int, error: ErrorCode, shown: ErrorCode
) -> None:
    async def story(group: Group) -> None:
        sent = group.commit(5, version=version)
        group.answer(error)
        assert await sent.error() is shown

    run(story)


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(PRODUCER[1], ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.INVALID_PRODUCER_EPOCH)],
)
def test_marker_during_the_admission_rejects_the_commit(epoch: int, error: ErrorCode) -> None:
    """Written after the marker, the offset would belong to the producer's next transaction."""

    async def story(group: Group) -> None:
        sent = group.commit(5)
        await group.complete(epoch=epoch)
        group.answer()
        assert await sent.error() is error
        await group.complete(epoch=epoch)
        assert group.committed is None

    run(story)


def test_marker_of_previous_transaction_rejects_no_commit() -> None:
    """A client with transaction version 2 may commit before the marker is written."""

    async def story(group: Group) -> None:
        first = group.commit(5, version=5)
        group.answer()
        assert await first.error() is NONE
        sent = group.commit(6, version=5, epoch=4)
        await group.complete(epoch=4)
        assert group.committed == 5
        group.answer()
        assert await sent.error() is NONE
        await group.complete(epoch=5)
        assert group.committed == 6

    run(story)


def test_repeated_marker_of_previous_transaction_rejects_no_commit() -> None:
    """The next coordinator of a cluster repeats the marker, which has the epoch of the commit."""

    async def story(group: Group) -> None:
        first = group.commit(5, version=5)
        group.answer()
        assert await first.error() is NONE
        await group.complete(epoch=4)
        sent = group.commit(6, version=5, epoch=4)
        await group.complete(epoch=4)
        group.answer()
        assert await sent.error() is NONE
        await group.complete(epoch=5)
        assert group.committed == 6

    run(story)


def test_commit_of_fenced_producer_is_rejected_at_once() -> None:
    async def story(group: Group) -> None:
        await group.complete(epoch=4, is_commit=False)
        assert await group.commit(5).error() is ErrorCode.INVALID_PRODUCER_EPOCH
        assert not group.participation.asked

    run(story)


def test_second_commit_of_a_transaction_is_admitted() -> None:
    async def story(group: Group) -> None:
        for offset in (5, 6):
            sent = group.commit(offset)
            group.answer()
            assert await sent.error() is NONE
        await group.complete()
        assert group.committed == 6

    run(story)


def test_each_commit_of_a_transaction_asks_the_coordinator() -> None:
    """Otherwise an offset could join a transaction whose end is decided, as in Kafka."""

    async def story(group: Group) -> None:
        sent = group.commit(5, version=5)
        group.answer()
        assert await sent.error() is NONE
        late = group.commit(6, version=5)
        group.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        assert await late.error() is ErrorCode.CONCURRENT_TRANSACTIONS
        await group.complete()
        assert group.committed == 5

    run(story)


def test_topic_deleted_during_the_admission_gets_no_offset() -> None:
    """A topic created again under its name would start at the offset of the deleted one."""

    async def story(group: Group) -> None:
        sent = group.commit(5)
        group.is_topic_deleted = True
        group.answer()
        assert await sent.error() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await group.complete()
        assert group.committed is None

    run(story)
