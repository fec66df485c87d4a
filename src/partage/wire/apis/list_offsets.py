"""ListOffsets (2): finds the offset for a time, or an end of a partition.

v1 one offset for a time (KIP-79); v2 isolation level (KIP-98), throttle time; v4 leader epoch
(KIP-320); v6 flexible; v7 the latest timestamp (KIP-734); v8 the earliest local offset (KIP-405);
v9 the latest tiered one (KIP-1005); v10 timeout (KIP-1075).
"""

from __future__ import annotations

from typing import Annotated, Final

from partage.wire.api import Api
from partage.wire.types import Array, Int8, Int16, Int32, Int64, Message, Since, String

#: Values of ``timestamp_ms`` that are no times.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3  # v7
EARLIEST_LOCAL: Final = -4  # v8
LATEST_TIERED: Final = -5  # v9


class ListOffsetsPartition(Message):
    """A partition, and the time of the first record that is sought."""

    partition_index: Int32
    current_leader_epoch: Annotated[Int32, Since(4)] = -1
    timestamp_ms: Int64


class ListOffsetsTopic(Message):
    """The partitions of one topic."""

    name: String
    partitions: Array[ListOffsetsPartition]


class ListOffsetsRequest(Message):
    """Which offsets are sought; a consumer's ``replica_id`` is -1."""

    replica_id: Int32 = -1
    isolation_level: Annotated[Int8, Since(2)] = 0
    topics: Array[ListOffsetsTopic]
    timeout_ms: Annotated[Int32, Since(10)] = 0


class ListOffsetsPartitionResult(Message):
    """The offset found and its record's time, both -1 where there is none."""

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
