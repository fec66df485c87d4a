"""Structures and constants that several messages share."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from partage.wire.types import Int32, Message, NullableString, String


class ConfigResourceType(IntEnum):
    """The kind of an object that has configs."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class AclOperation(IntEnum):
    """An operation that a client may be authorized for, by its bit in a set (KIP-430)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def _operation_set(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


#: Value of a set of authorized operations that was not requested (KIP-430).
OPERATIONS_OMITTED: Final = -(2**31)
#: All operations on a cluster, a topic and a group, as in Kafka's `AclEntry`. A broker without an
#: authorizer reports them.
CLUSTER_OPERATIONS: Final = _operation_set(
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)
TOPIC_OPERATIONS: Final = _operation_set(
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
GROUP_OPERATIONS: Final = _operation_set(
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)


class CurrentLeader(Message):
    """The current leader of a partition, for a client that asked another broker (KIP-951)."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class NodeEndpoint(Message):
    """The address of a broker named in a `CurrentLeader`."""

    node_id: Int32
    host: String
    port: Int32
    rack: NullableString = None
