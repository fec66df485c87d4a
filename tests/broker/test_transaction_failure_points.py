"""A transaction whose coordinator, a broker process, is killed at each of its steps.

confluent-kafka has the requests from before KIP-890. It notices only that its calls take longer.
`broker.test_transaction_version_2_failures` has the requests of ``transaction.version`` 2.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from broker.raw_client import RawClient
from client.confluent_admin import create_topic, produce
from partage.wire.apis.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest
from polled_conditions import PATIENCE_S, eventually

from .dying_broker import dying_broker
from .dying_transaction_coordinator import STEPS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FAST = {
    "log_level": 0,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    # Otherwise librdkafka 2.16 can hang in send_offsets_to_transaction (docs/exactly-once.md).
    "metadata.recovery.strategy": "none",
}
PARTITIONS = (0, 1)
#: Steps before the decision are those of every transaction, so one result is enough.
CASES = [
    (step, is_commit)
    for step in STEPS
    for is_commit in (True, False)
    if is_commit or not ("the id" in step or "the first partition" in step)
]


@pytest.mark.parametrize(("step", "is_commit"), CASES)
def test_coordinator_killed_at_step_ends_transaction_as_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, is_commit: bool
) -> None:
    """The transaction has records of two partitions, and the offset of a group."""
    with dying_broker(tmp_path, monkeypatch, step) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "source")
        create_topic(servers, "target", len(PARTITIONS))
        produce(servers, "source", [{"value": b"1"}, {"value": b"2"}])
        producer, consumer = producer_of(servers), consumer_of(servers)
        producer.init_transactions(PATIENCE_S)
        transact(producer, consumer, b"1", is_commit=is_commit)
        broker.check_restarted()
        # The next transaction waits for the markers of this one.
        transact(producer, consumer, b"2", is_commit=True)
        expected = [b"1", b"1", b"2", b"2"] if is_commit else [b"2", b"2"]
        assert committed_values(servers, len(expected)) == expected
        assert committed_offset(servers) == 2
        eventually(lambda: states(servers) == {"writer": "CompleteCommit"})
        consumer.close()


def committed_offset(servers: str) -> int:
    """Return the position of the group once no transaction holds it back."""
    consumer = consumer_of(servers)
    (found,) = consumer.committed([TopicPartition("source", 0)], PATIENCE_S)
    consumer.close()
    assert isinstance(found.offset, int)
    return found.offset


def producer_of(servers: str) -> Producer:
    return Producer(
        {"bootstrap.servers": servers, "transactional.id": "writer", "linger.ms": 0, **FAST}
    )


def consumer_of(servers: str) -> Consumer:
    """Return a consumer of the group whose offsets are committed."""
    return Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False, **FAST}
    )


def transact(producer: Producer, consumer: Consumer, value: bytes, *, is_commit: bool) -> None:
    """Write a value to each partition, commit its offset + 1, and end the transaction."""
    producer.begin_transaction()
    for partition in PARTITIONS:
        producer.produce("target", value, partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    position = TopicPartition("source", 0, int(value))
    group = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([position], group, PATIENCE_S)
    if is_commit:
        producer.commit_transaction(PATIENCE_S)
    else:
        producer.abort_transaction(PATIENCE_S)


def committed_values(servers: str, count: int) -> list[bytes]:
    """Read both partitions to their ends, in order of the values; at least ``count`` records."""
    reader = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            **FAST,
        }
    )
    reader.assign([TopicPartition("target", each, 0) for each in PARTITIONS])
    found: list[bytes] = []
    ended = set[int]()
    while len(found) < count or len(ended) < len(PARTITIONS):
        message = reader.poll(PATIENCE_S)
        assert message is not None, found
        if message.error():
            ended.add(message.partition())
        else:
            found.append(message.value())
            ended.discard(message.partition())
    reader.close()
    return sorted(found)


def states(servers: str) -> dict[str, str]:
    """Return the states of all transactional ids."""
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    with RawClient(servers) as raw:
        response = raw.request(LIST_TRANSACTIONS, request)
    return {each.transactional_id: each.transaction_state for each in response.transaction_states}
