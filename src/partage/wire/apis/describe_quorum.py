"""DescribeQuorum (API key 55): the brokers that decide on changes of the cluster (KIP-595).

v1 times of the voters (KIP-836); v2 directories and endpoints (KIP-853). Flexible in all versions.
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.types import (
    ZERO_UUID,
    Array,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Since,
    String,
    UInt16,
    Uuid,
)


class DescribeQuorumPartition(Message):
    """A partition of the request."""

    partition_index: Int32


class DescribeQuorumTopic(Message):
    """A topic of the request."""

    topic_name: String
    partitions: Array[DescribeQuorumPartition]


class DescribeQuorumRequest(Message):
    """The metadata partition, which Kafka calls ``__cluster_metadata-0``."""

    topics: Array[DescribeQuorumTopic]


class QuorumReplica(Message):
    """A voter or an observer."""

    replica_id: Int32
    replica_directory_id: Annotated[Uuid, Since(2)] = ZERO_UUID
    log_end_offset: Int64
    last_fetch_timestamp: Annotated[Int64, Since(1)] = -1
    last_caught_up_timestamp: Annotated[Int64, Since(1)] = -1


class QuorumPartition(Message):
    """The state of the metadata partition."""

    partition_index: Int32
    error_code: Int16
    error_message: Annotated[NullableString, Since(2)] = None
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: Array[QuorumReplica]
    observers: Array[QuorumReplica]


class QuorumTopic(Message):
    """The partitions of a topic."""

    topic_name: String
    partitions: Array[QuorumPartition]


class QuorumListener(Message):
    """An endpoint of a node."""

    name: String
    host: String
    port: UInt16


class QuorumNode(Message):
    """A node and its endpoints."""

    node_id: Int32
    listeners: Array[QuorumListener]


class DescribeQuorumResponse(Message):
    """The state of the requested partitions."""

    error_code: Int16
    error_message: Annotated[NullableString, Since(2)] = None
    topics: Array[QuorumTopic]
    nodes: Annotated[Array[QuorumNode], Since(2)] = []


DESCRIBE_QUORUM = Api(
    55,
    "DescribeQuorum",
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    versions=(0, 2),
    flexible=0,
)
