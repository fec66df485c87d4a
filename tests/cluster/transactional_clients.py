"""Transactional producers and read_committed readers of a cluster, and look-ups of coordinators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Consumer, Producer, TopicPartition

from broker.raw_client import RawClient
from partage.wire.apis.find_coordinator import (
    FIND_COORDINATOR,
    TRANSACTION,
    FindCoordinatorRequest,
)
from partage.wire.apis.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest
from polled_conditions import PATIENCE_S, eventually

from .brokers import ClusterBroker
from .group_members import FAST_RECONNECT


def transactional_producer(servers: str, transactional_id: str) -> Producer:
    """Return an initialized producer."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 120_000,
            "linger.ms": 0,
            "socket.timeout.ms": 3_000,  # of requests to a stopped broker
            **FAST_RECONNECT,
        }
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def write(producer: Producer, topic: str, value: bytes, *partitions: int) -> None:
    """Begin a transaction with one record in each of the partitions."""
    producer.begin_transaction()
    for partition in partitions:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(PATIENCE_S) == 0


class CommittedReader:
    """Reads partitions of a topic with read_committed; ``read`` has (partition, value)."""

    def __init__(self, servers: str, topic: str, partitions: Sequence[int]) -> None:
        self.read: list[tuple[int, bytes]] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"reader-of-{topic}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                **FAST_RECONNECT,
            }
        )
        self._consumer.assign([TopicPartition(topic, each, 0) for each in partitions])

    def poll(self, timeout_s: float = 0.1) -> list[tuple[int, bytes]]:
        for message in self._consumer.consume(100, timeout_s):
            if message.error() is None:
                self.read.append((message.partition(), message.value()))
        return self.read

    def wait(self, expected: Sequence[tuple[int, bytes]]) -> None:
        """Wait until these records were read, and fail on others."""
        eventually(lambda: len(self.poll()) >= len(expected), lambda: str(self.read))
        assert sorted(self.read) == sorted(expected)

    def close(self) -> None:
        self._consumer.close()


def transaction_coordinator(broker: ClusterBroker, transactional_id: str) -> int:
    """Return the broker id of a coordinator, -1 while there is none."""
    request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id])
    with RawClient(broker.address, timeout_s=PATIENCE_S) as raw:
        (found,) = raw.request(FIND_COORDINATOR, request).coordinators
    return found.node_id


def id_coordinated_by(
    broker: ClusterBroker, node_id: int, name: Callable[[int], str] = "tx{}".format
) -> str:
    """Return a transactional id whose coordinator is a broker, once every shard has an owner."""
    names = [name(number) for number in range(30)]

    def find() -> str | None:
        owners = {each: transaction_coordinator(broker, each) for each in names}
        if -1 in owners.values():
            return None
        return next((each for each, owner in owners.items() if owner == node_id), None)

    found = eventually(find)
    assert found is not None
    return found


def listed_states(broker: ClusterBroker) -> Mapping[str, str]:
    """Return the states of the transactional ids that one broker lists."""
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    with RawClient(broker.address, timeout_s=PATIENCE_S) as raw:
        response = raw.request(LIST_TRANSACTIONS, request)
    assert response.error_code in (0, 14), response.error_code
    return {each.transactional_id: each.transaction_state for each in response.transaction_states}


def wait_state(broker: ClusterBroker, transactional_id: str, state: str) -> None:
    """Wait until a broker lists a transactional id in a state."""
    eventually(lambda: listed_states(broker).get(transactional_id) == state)
