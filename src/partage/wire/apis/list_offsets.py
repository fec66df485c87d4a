"""ListOffsets (API key 2): offsets by timestamp, and the start and end offsets of partitions.

v1 one offset for a timestamp (KIP-79); v2 isolation level (KIP-98), throttle time; v4 leader epoch
(KIP-320); v6 flexible; v7 largest timestamp (KIP-734); v8 earliest local offset (KIP-405); v9
latest tiered offset (KIP-1005); v10 timeout (KIP-1075).
"""

from __future__ import annotations

from typing import Annotated, Final

from partage.wire.api import Api
from partage.wire.types import Array, Int8, Int16, Int32, Int64, Message, Since, String

#: Special values of ``timestamp_ms``.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3  # v7
EARLIEST_LOCAL: Final = -4  # v8
LATEST_TIERED: Final = -5  # v9


class ListOffsetsPartition(Message):
    """A partition, and the timestamp to look up."""

    partition_index: Int32
    current_leader_epoch: Annotated[Int32, Since(4)] = -1
    timestamp_ms: Int64


class ListOffsetsTopic(Message):
    """The partitions of one topic."""

    name: String
    partitions: Array[ListOffsetsPartition]


class ListOffsetsRequest(Message):
    """The offsets to look up. ``replica_id`` is -1 for a consumer."""

    replica_id: Int32 = -1
    isolation_level: Annotated[Int8, Since(2)] = 0
    topics: Array[ListOffsetsTopic]
    timeout_ms: Annotated[Int32, Since(10)] = 0


class ListOffsetsPartitionResult(Message):
    """The offset found and the timestamp of its record, both -1 if there is none."""

    partition_index: Int32
    error_code: Int16
    timestamp_ms: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, Since(4)] = -1


class ListOffsetsTopicResult(Message):
    """The partitions of one topic."""

    name: String
    partitions: Array[ListOffsetsPartitionResult]


class ListOffsetsResponse(Message):
    """The offset of each partition of the request."""

    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    topics: Array[ListOffsetsTopicResult]


LIST_OFFSETS = Api(
    2, "ListOffsets", ListOffsetsRequest, ListOffsetsResponse, versions=(1, 10), flexible=6
)
