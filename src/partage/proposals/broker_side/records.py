"""The durable state of the design: persistent nodes of ZooKeeper, on the document's paths.

The document removes the nodes of the members. A coordinator finds the earlier members of a group in
the owners of its partitions.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Final, TypeAlias

import msgspec

#: The ephemeral node of the coordinator. Its data is the id of the broker.
COORDINATOR_PATH: Final = "/consumers/coordinator"
#: The coordinator watches the children of this node, and each of them.
TOPICS_PATH: Final = "/brokers/topics"
#: Each child has the id of a group whose rebalancing is off (KAFKA-364). An operator creates and
#: deletes them, and the coordinator watches them.
FROZEN_GROUPS_PATH: Final = "/admin/frozen_groups"

#: A group id is a part of paths, and must not be the name of the coordinator's node.
_GROUP_ID: Final = re.compile(r"(?!(?:\.\.?|coordinator)\Z)[A-Za-z0-9._-]{1,249}")
#: A consumer id is a part of the id of each thread, and the node of each partition has one. Longer
#: ids, and a thread's number after them, would not fit the int16 length of a string.
CONSUMER_ID_BYTES_MAX: Final = 1_024
_PARTITION: Final = re.compile(r"[0-9]{1,10}-([0-9]{1,10})")


class ConsumedOffsetRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The committed offset of a partition."""

    group_id: str
    topic: str
    partition: int
    offset: int

    @property
    def path(self) -> str:
        """The path of the node."""
        return f"/consumers/{self.group_id}/offsets/{self.topic}/{self.partition}"


class OwnerRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The owner of a partition, or None if the node is deleted.

    ``session_timeout_ms`` is that of the consumer. The next coordinator waits so long for it.
    """

    group_id: str
    topic: str
    partition: int
    thread: str | None
    session_timeout_ms: int = 0

    @property
    def path(self) -> str:
        """The path of the node."""
        return f"/consumers/{self.group_id}/owners/{self.topic}/{self.partition}"


Record: TypeAlias = ConsumedOffsetRecord | OwnerRecord


def record_key(record: Record) -> Hashable:
    """Return the key of a record: its node has only the last one."""
    return type(record), record.group_id, record.topic, record.partition


def thread_id(consumer_id: str, number: int) -> str:
    """Return the id of a consumer's thread."""
    return f"{consumer_id}-{number}"


def consumer_of(thread: str) -> str:
    """Return the id of the consumer that a thread belongs to."""
    return thread.rpartition("-")[0]


def partition_name(broker_id: int, partition: int) -> str:
    """Return the partition string of the messages, which has the id of a broker."""
    return f"{broker_id}-{partition}"


def partition_number(name: str) -> int:
    """Return the number in a partition string; -1 if it is not ``<broker>-<partition>``."""
    matched = _PARTITION.fullmatch(name)
    return int(matched[1]) if matched else -1


def is_group_id(text: str) -> bool:
    """True if a group of this id can have nodes in ZooKeeper."""
    return _GROUP_ID.fullmatch(text) is not None


def is_consumer_id(text: str) -> bool:
    """True if the id of a consumer is neither empty nor too long."""
    return 0 < len(text.encode()) <= CONSUMER_ID_BYTES_MAX
