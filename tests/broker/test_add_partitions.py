"""AddPartitionsToTxn of clients and brokers, and DescribeProducers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from partage.broker.apis.producers import init_producer_id, transaction_handlers
from partage.broker.apis.transactions import describe_producers
from partage.broker.broker import Broker
from partage.broker.topics.producer_ids import ProducerIdManager
from partage.log.memory_disk import MemoryDisk
from partage.model.errors import ErrorCode
from partage.model.settings import BrokerSettings, TransactionSettings
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.store.transaction_log import TOPIC as TRANSACTIONS_TOPIC
from partage.wire.apis.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from partage.wire.apis.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from partage.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest

from .transactional_world import NONE, Inbound
from .turn_counter import TurnCounter


class Fixture:
    """A broker in memory with topic ``t`` and an initialized producer."""

    def __init__(self, broker: Broker, disk: MemoryDisk) -> None:
        self.broker = broker
        self._ids = ProducerIdManager(disk)

    async def init(self) -> Fixture:
        await self.broker.transactions.create_topic()
        request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=9_000)
        inbound = Inbound(INIT_PRODUCER_ID, request, 4)
        init_producer_id(inbound, self._ids, self.broker.transactions)
        await inbound.answered.wait()
        self.producer = inbound.response.producer_id, inbound.response.producer_epoch
        return self

    async def add(self, *transactions: AddPartitionsToTxnTransaction, version: int) -> Inbound:
        """Return the answered request; up to version 3 it has the first transaction only."""
        first = transactions[0]
        request = AddPartitionsToTxnRequest(
            transactions=list(transactions),
            v3_and_below_transactional_id=first.transactional_id,
            v3_and_below_producer_id=first.producer_id,
            v3_and_below_producer_epoch=first.producer_epoch,
            v3_and_below_topics=first.topics,
        )
        inbound = Inbound(ADD_PARTITIONS_TO_TXN, request, version)
        handlers = transaction_handlers(self.broker.transactions, self.broker.log_manager, 1)
        handlers[ADD_PARTITIONS_TO_TXN.key](inbound)
        await inbound.answered.wait()
        return inbound

    def transaction(
        self, topics: Mapping[str, list[int]], *, verify_only: bool = False
    ) -> AddPartitionsToTxnTransaction:
        return AddPartitionsToTxnTransaction(
            transactional_id="x",
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            verify_only=verify_only,
            topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in topics.items()
            ],
        )


def run(scenario: Callable[[Fixture], Coroutine[Any, Any, None]]) -> None:
    async def running() -> None:
        settings = BrokerSettings(
            offsets_partitions=1, transactions=TransactionSettings(partitions=1)
        )
        disk = MemoryDisk()
        broker = await Broker.start(disk, settings, host="127.0.0.1", port=0)
        await broker.log_manager.create("t", 2, {})
        try:
            await scenario(await Fixture(broker, disk).init())
        finally:
            await broker.stop()

    asyncio.run(running())


def errors_of(topics: Any) -> dict[tuple[str, int], ErrorCode]:
    return {
        (topic.name, one.partition_index): ErrorCode(one.partition_error_code)
        for topic in topics
        for one in topic.results_by_partition
    }


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
def test_client_cannot_add_internal_topics(topic: str) -> None:
    """Kafka authorizes no client for them; AddOffsetsToTxn adds the offsets."""

    async def scenario(its: Fixture) -> None:
        inbound = await its.add(its.transaction({"t": [0], topic: [0]}), version=3)
        assert errors_of(inbound.response.results_by_topic_v3_and_below) == {
            ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
            (topic, 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        }

    run(scenario)


def test_broker_adds_offsets_topic() -> None:
    async def scenario(its: Fixture) -> None:
        inbound = await its.add(its.transaction({OFFSETS_TOPIC: [0]}), version=5)
        (result,) = inbound.response.results_by_transaction
        assert errors_of(result.topic_results) == {(OFFSETS_TOPIC, 0): NONE}
        inbound = await its.add(its.transaction({OFFSETS_TOPIC: [1]}), version=5)
        (result,) = inbound.response.results_by_transaction
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert errors_of(result.topic_results) == {(OFFSETS_TOPIC, 1): unknown}

    run(scenario)


def test_many_transactions_leave_turns_to_other_requests() -> None:
    async def scenario(its: Fixture) -> None:
        await its.add(its.transaction({"t": [0]}), version=5)
        counter = TurnCounter()
        many = [its.transaction({"t": [0]}, verify_only=True) for _ in range(2_000)]
        inbound = await its.add(*many, version=5)
        results = inbound.response.results_by_transaction
        assert {tuple(errors_of(each.topic_results).values()) for each in results} == {(NONE,)}
        assert len(results) == 2_000
        assert counter.turns > 10

    run(scenario)


@pytest.mark.parametrize("version", [3, 5])
def test_many_partitions_leave_turns_to_other_requests(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are checked in several turns, and so is their response built."""
    monkeypatch.setattr("partage.broker.apis.producers._PARTITIONS_PER_TURN", 1)

    async def scenario(its: Fixture) -> None:
        counter = TurnCounter()
        inbound = await its.add(its.transaction({"t": list(range(30))}), version=version)
        if version == 3:
            topics = inbound.response.results_by_topic_v3_and_below
        else:
            topics = inbound.response.results_by_transaction[0].topic_results
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert errors_of(topics) == {
            ("t", index): unknown if index > 1 else ErrorCode.OPERATION_NOT_ATTEMPTED
            for index in range(30)
        }
        assert counter.turns > 60

    run(scenario)


def test_producers_of_failed_partition_are_not_described() -> None:
    async def scenario(its: Fixture) -> None:
        partition = its.broker.log_manager.partition("t", 0)
        assert partition is not None
        partition.fail(OSError("the disk failed"))
        topic = DescribeProducersTopic(name="t", partition_indexes=[0, 1])
        inbound = Inbound(DESCRIBE_PRODUCERS, DescribeProducersRequest(topics=[topic]), 0)
        describe_producers(inbound, its.broker.log_manager)
        (described,) = inbound.response.topics
        assert [one.error_code for one in described.partitions] == [
            ErrorCode.KAFKA_STORAGE_ERROR,
            NONE,
        ]

    run(scenario)
