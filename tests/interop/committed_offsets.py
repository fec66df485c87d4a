"""Committed offsets of a group, read by a client outside the group."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from interop.checker import Partition


def committed_offsets(
    bootstrap: str, group: str, partitions: Iterable[Partition]
) -> dict[Partition, int]:
    """Return the committed offset of each partition that has one."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = answer[group].result(30).topic_partitions
    wanted = set(partitions)
    return {
        (each.topic, each.partition): each.offset
        for each in found
        if (each.topic, each.partition) in wanted and each.offset >= 0
    }


def protocol_of(bootstrap: str, group: str) -> str:
    """Return the assignor that the group has selected."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(30)
    return str(described.partition_assignor)
