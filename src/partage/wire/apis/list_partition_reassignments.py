"""ListPartitionReassignments (API key 46): partitions that are moving between brokers (KIP-455).

Flexible in all versions.
"""

from __future__ import annotations

from partage.wire.api import Api
from partage.wire.types import Array, Int16, Int32, Message, NullableArray, NullableString, String


class ListPartitionReassignmentsTopic(Message):
    """A topic and its requested partitions."""

    name: String
    partition_indexes: Array[Int32]


class ListPartitionReassignmentsRequest(Message):
    """The partitions; ``topics`` None requests all."""

    timeout_ms: Int32 = 60_000
    topics: NullableArray[ListPartitionReassignmentsTopic] = None


class OngoingPartitionReassignment(Message):
    """A partition that is moving, and its replicas by broker id."""

    partition_index: Int32
    replicas: Array[Int32]
    adding_replicas: Array[Int32]
    removing_replicas: Array[Int32]


class OngoingTopicReassignment(Message):
    """A topic and its partitions that are moving."""

    name: String
    partitions: Array[OngoingPartitionReassignment]


class ListPartitionReassignmentsResponse(Message):
    """The partitions that are moving."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: NullableString
    topics: Array[OngoingTopicReassignment]


LIST_PARTITION_REASSIGNMENTS = Api(
    46,
    "ListPartitionReassignments",
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    versions=(0, 0),
    flexible=0,
)
