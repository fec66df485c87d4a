"""Requests about transactions, to their coordinators and to the leaders of partitions (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from partage.client.cluster import Cluster
from partage.client.connection import Connection
from partage.client.errors import BrokerResponseError
from partage.model.addresses import Address
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.describe_producers import (
    DESCRIBE_PRODUCERS,
    ActiveProducer,
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from partage.wire.apis.describe_transactions import (
    DESCRIBE_TRANSACTIONS,
    DescribedTransaction,
    DescribeTransactionsRequest,
)
from partage.wire.apis.find_coordinator import (
    FIND_COORDINATOR,
    TRANSACTION,
    FindCoordinatorRequest,
)
from partage.wire.apis.list_transactions import (
    LIST_TRANSACTIONS,
    ListedTransaction,
    ListTransactionsRequest,
)

#: Number of partitions in a request, as in Kafka's tool.
_PARTITIONS_MAX: Final = 500


class PartitionProducer(msgspec.Struct, frozen=True):
    """A producer in a partition, as the leader knows it. Unknown values are null.

    ``start_offset`` is the first offset of its open transaction.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    last_sequence: int | None
    last_timestamp_ms: int | None
    start_offset: int | None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


class OpenTransaction(msgspec.Struct, frozen=True):
    """An open transaction in a partition, and its transaction at the coordinator if there is one.

    Attributes:
        producer: the producer, with the first offset of the transaction.
        transactional_id: the id of the producer; None if no coordinator knows the producer.
        start_ms: the start of the transaction; None if no coordinator has it in this partition.
    """

    producer: PartitionProducer
    transactional_id: str | None
    start_ms: int | None

    @property
    def is_hanging(self) -> bool:
        """True if no coordinator will end the transaction in this partition."""
        return self.start_ms is None


async def list_transactions(
    client: Cluster, address: Address, request: ListTransactionsRequest
) -> list[ListedTransaction]:
    """Return the transactional ids that a broker coordinates.

    Raises:
        ClientError: The broker cannot be reached, or it refuses the request.
    """
    broker = await client.connect_to(address)
    response = await broker.send(LIST_TRANSACTIONS, request)
    if response.error_code:
        raise BrokerResponseError(response.error_code, f"transactions of the broker at {address}")
    return response.transaction_states


async def describe_transaction(
    client: Cluster, transactional_id: str
) -> DescribedTransaction | None:
    """Return the transaction of a transactional id; None if the id does not exist.

    Raises:
        ClientError: The coordinator cannot be reached, or it refuses the request.
    """
    what = f"transactional id {transactional_id!r}"
    broker = await client.any_broker()
    lookup = FindCoordinatorRequest(
        key=transactional_id, key_type=TRANSACTION, coordinator_keys=[transactional_id]
    )
    answer = await broker.send(FIND_COORDINATOR, lookup)
    coordinator = answer.coordinators[0] if answer.coordinators else answer
    if coordinator.error_code:
        raise BrokerResponseError(coordinator.error_code, what)
    connection = await client.connect_to(Address(coordinator.host, coordinator.port))
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (described,) = (await connection.send(DESCRIBE_TRANSACTIONS, request)).transaction_states
    if described.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    if described.error_code:
        raise BrokerResponseError(described.error_code, what)
    return described


async def describe_producers(
    client: Cluster, partitions: Iterable[TopicPartition]
) -> list[PartitionProducer]:
    """Return the producers of partitions, by partition and producer id.

    Raises:
        ClientError: A partition does not exist or has no leader, or the leader refuses the request.
    """
    by_leader: dict[Connection, list[TopicPartition]] = {}
    wanted = sorted(partitions)
    await client.topics(each.topic for each in wanted)  # One request instead of one per topic.
    for partition in wanted:
        connection, _ = await client.leader(partition)
        by_leader.setdefault(connection, []).append(partition)
    found: list[PartitionProducer] = []
    for connection, led in by_leader.items():
        for start in range(0, len(led), _PARTITIONS_MAX):
            some = led[start : start + _PARTITIONS_MAX]
            found += await _describe_producers(client, connection, some)
    return sorted(found, key=lambda one: (one.topic_partition, one.producer_id))


async def _describe_producers(
    client: Cluster, leader: Connection, partitions: Iterable[TopicPartition]
) -> list[PartitionProducer]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    request = DescribeProducersRequest(
        topics=[
            DescribeProducersTopic(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ]
    )
    response = await leader.send(DESCRIBE_PRODUCERS, request)
    found = []
    for described in response.topics:
        for partition in described.partitions:
            where = TopicPartition(described.name, partition.partition_index)
            if partition.error_code:
                client.invalidate_topic(where.topic)
                what = f"producers of {where.topic}-{where.partition}"
                raise BrokerResponseError(partition.error_code, what)
            found += [_producer(where, one) for one in partition.active_producers]
    return found


def _producer(where: TopicPartition, active: ActiveProducer) -> PartitionProducer:
    def known(value: int) -> int | None:
        return None if value < 0 else value

    return PartitionProducer(
        topic=where.topic,
        partition=where.partition,
        producer_id=active.producer_id,
        producer_epoch=active.producer_epoch,
        coordinator_epoch=known(active.coordinator_epoch),
        last_sequence=known(active.last_sequence),
        last_timestamp_ms=known(active.last_timestamp),
        start_offset=known(active.current_txn_start_offset),
    )


async def find_transactions(
    client: Cluster, brokers: Sequence[Address], producers: Sequence[PartitionProducer]
) -> list[OpenTransaction]:
    """Return the open transactions of producers, with what their coordinators know of them.

    A transaction that seems to hang may have ended before the coordinators answered, so the leaders
    are asked a second time. Transactions that have ended are omitted.

    Args:
        client: the cluster.
        brokers: all brokers; each can be a coordinator.
        producers: producers with open transactions.

    Raises:
        ClientError: A broker cannot be reached, or it refuses a request.
    """
    described = await _transactions_by_producer(client, brokers, {p.producer_id for p in producers})
    found = [_open_transaction(one, described.get(one.producer_id)) for one in producers]
    doubtful = {one.producer.topic_partition for one in found if one.is_hanging}
    still_open = {_identity(one) for one in await describe_producers(client, doubtful)}
    return [one for one in found if not one.is_hanging or _identity(one.producer) in still_open]


async def _transactions_by_producer(
    client: Cluster, brokers: Sequence[Address], producer_ids: set[int]
) -> Mapping[int, DescribedTransaction]:
    if not producer_ids:
        return {}
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=sorted(producer_ids))
    listed = [
        one for address in brokers for one in await list_transactions(client, address, request)
    ]
    described = [await describe_transaction(client, one.transactional_id) for one in listed]
    return {one.producer_id: one for one in described if one is not None}


def _open_transaction(
    producer: PartitionProducer, described: DescribedTransaction | None
) -> OpenTransaction:
    if described is None:
        return OpenTransaction(producer, None, None)
    has_partition = any(
        topic.topic == producer.topic and producer.partition in topic.partitions
        for topic in described.topics
    )
    start_ms = described.transaction_start_time_ms if has_partition else None
    return OpenTransaction(producer, described.transactional_id, start_ms)


def _identity(producer: PartitionProducer) -> tuple[TopicPartition, int, int | None]:
    return producer.topic_partition, producer.producer_id, producer.start_offset
