"""AlterPartitionReassignments (API key 45): moves partitions to other brokers (KIP-455).

v1 can forbid other replication factors (KIP-860). Flexible in all versions.
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.types import (
    Array,
    Bool,
    Int16,
    Int32,
    Message,
    NullableArray,
    NullableString,
    Since,
    String,
)


class ReassignablePartition(Message):
    """A partition and its new replicas; None cancels a reassignment."""

    partition_index: Int32
    replicas: NullableArray[Int32] = None


class ReassignableTopic(Message):
    """A topic and its partitions to move."""

    name: String
    partitions: Array[ReassignablePartition]


class AlterPartitionReassignmentsRequest(Message):
    """The reassignments."""

    timeout_ms: Int32 = 60_000
    allow_replication_factor_change: Annotated[Bool, Since(1)] = True
    topics: Array[ReassignableTopic]


class ReassignablePartitionResponse(Message):
    """The result for a partition."""

    partition_index: Int32
    error_code: Int16
    error_message: NullableString


class ReassignableTopicResponse(Message):
    """The results for the partitions of a topic."""

    name: String
    partitions: Array[ReassignablePartitionResponse]


class AlterPartitionReassignmentsResponse(Message):
    """The results."""

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Bool, Since(1)] = True
    error_code: Int16
    error_message: NullableString
    responses: Array[ReassignableTopicResponse]


ALTER_PARTITION_REASSIGNMENTS = Api(
    45,
    "AlterPartitionReassignments",
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    versions=(0, 1),
    flexible=0,
)
