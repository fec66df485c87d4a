"""DescribeTopicPartitions (API key 75): topics with their partitions, in pages (KIP-966).

Flexible in all versions.
"""

from __future__ import annotations

from partage.wire.api import Api
from partage.wire.apis.common import OPERATIONS_OMITTED
from partage.wire.types import (
    ZERO_UUID,
    Array,
    Bool,
    Int16,
    Int32,
    Message,
    NullableArray,
    NullableString,
    String,
    Uuid,
)


class TopicPartitionsCursor(Message):
    """The first partition of a page."""

    topic_name: String
    partition_index: Int32


class DescribeTopicPartitionsTopic(Message):
    """A topic given by name."""

    name: String


class DescribeTopicPartitionsRequest(Message):
    """The topics, sorted by name, from ``cursor`` on."""

    topics: Array[DescribeTopicPartitionsTopic]
    response_partition_limit: Int32 = 2000
    cursor: TopicPartitionsCursor | None = None


class DescribedTopicPartition(Message):
    """The leader and the replicas of a partition, and the replicas eligible as leader."""

    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = -1
    replica_nodes: Array[Int32]
    isr_nodes: Array[Int32]
    eligible_leader_replicas: NullableArray[Int32] = None
    last_known_elr: NullableArray[Int32] = None
    offline_replicas: Array[Int32]


class DescribedTopic(Message):
    """A topic and its partitions on this page."""

    error_code: Int16
    name: NullableString
    topic_id: Uuid = ZERO_UUID
    is_internal: Bool = False
    partitions: Array[DescribedTopicPartition]
    topic_authorized_operations: Int32 = OPERATIONS_OMITTED


class DescribeTopicPartitionsResponse(Message):
    """A page. ``next_cursor`` is None on the last page."""

    throttle_time_ms: Int32 = 0
    topics: Array[DescribedTopic]
    next_cursor: TopicPartitionsCursor | None = None


DESCRIBE_TOPIC_PARTITIONS = Api(
    75,
    "DescribeTopicPartitions",
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    versions=(0, 0),
    flexible=0,
)
