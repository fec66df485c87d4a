"""OffsetForLeaderEpoch (API key 23): the end offset of an epoch, for truncation detection.

v2 the epoch that the client considers current (KIP-320), throttle time; v3 replica id (KIP-392); v4
flexible.
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.types import Array, Int16, Int32, Int64, Message, Since, String


class OffsetForLeaderPartition(Message):
    """A partition and the epoch whose end offset is requested."""

    partition: Int32
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32


class OffsetForLeaderTopic(Message):
    """The partitions of one topic."""

    topic: String
    partitions: Array[OffsetForLeaderPartition]


class OffsetForLeaderEpochRequest(Message):
    """The requested epochs.

    ``replica_id`` is -1 for a consumer; the default -2 may read beyond the high watermark.
    """

    replica_id: Annotated[Int32, Since(3)] = -2
    topics: Array[OffsetForLeaderTopic]


class OffsetForLeaderPartitionResult(Message):
    """The largest epoch not above the requested one, and its end offset, or -1 and -1."""

    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Message):
    """The partitions of one topic."""

    topic: String
    partitions: Array[OffsetForLeaderPartitionResult]


class OffsetForLeaderEpochResponse(Message):
    """The end offset of each requested epoch."""

    throttle_time_ms: Int32 = 0
    topics: Array[OffsetForLeaderTopicResult]


OFFSET_FOR_LEADER_EPOCH = Api(
    23,
    "OffsetForLeaderEpoch",
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    versions=(2, 4),
    flexible=4,
)
