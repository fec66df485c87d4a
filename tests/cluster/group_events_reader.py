"""Group events of several brokers, read with confluent-kafka."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from partage.store.group_events import TOPIC, GroupEventRecord, decode_event, order_by_epoch
from polled_conditions import eventually

from .brokers import PATIENCE_S, ClusterBroker, bootstrap
from .group_members import FAST_RECONNECT

Cluster = dict[int, ClusterBroker]


def partition_leaders(running: Cluster) -> dict[int, int]:
    """Return the leader of each events partition; -1 if its broker is down."""
    client = AdminClient({"bootstrap.servers": bootstrap(running), "log_level": 0})
    shown = client.list_topics(TOPIC, timeout=PATIENCE_S).topics[TOPIC]
    return {n: partition.leader for n, partition in shown.partitions.items()}


def read_events(running: Cluster) -> dict[int, list[bytes]]:
    """Return all events of live brokers by partition, read with confluent-kafka."""
    led = [n for n, leader in partition_leaders(running).items() if leader >= 0]
    values: dict[int, list[bytes]] = {n: [] for n in led}
    options = {"group.id": "unused", "enable.auto.commit": False, "enable.partition.eof": True}
    reader = Consumer({"bootstrap.servers": bootstrap(running), **options, **FAST_RECONNECT})
    reader.assign([TopicPartition(TOPIC, n, 0) for n in led])
    at_end: set[int] = set()

    def is_read() -> bool:
        for message in reader.consume(1000, 0.1):
            error = message.error()
            if error is None:
                values[message.partition()].append(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
        return at_end == set(led)

    eventually(is_read)
    reader.close()
    return values


def group_events(values: Mapping[int, list[bytes]], group: str) -> list[GroupEventRecord]:
    """Return the ordered events of a group."""
    read = [value for n in sorted(values) for value in values[n]]
    mine = [value for value in read if decode_event(value).group_id == group]
    return [decode_event(mine[place]) for place in order_by_epoch(mine)]
