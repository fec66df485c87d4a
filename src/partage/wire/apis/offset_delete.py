"""OffsetDelete (API key 47): deletes offsets of topics that a group no longer reads (KIP-496).

Not flexible in any version.
"""

from __future__ import annotations

from partage.wire.api import Api
from partage.wire.types import Array, Int16, Int32, Message, String


class OffsetDeletePartition(Message):
    """A partition whose offset is deleted."""

    partition_index: Int32


class OffsetDeleteTopic(Message):
    """The partitions of one topic."""

    name: String
    partitions: Array[OffsetDeletePartition]


class OffsetDeleteRequest(Message):
    """The offsets to delete."""

    group_id: String
    topics: Array[OffsetDeleteTopic]


class OffsetDeletePartitionResult(Message):
    """The result for one partition."""

    partition_index: Int32
    error_code: Int16


class OffsetDeleteTopicResult(Message):
    """The partitions of one topic."""

    name: String
    partitions: Array[OffsetDeletePartitionResult]


class OffsetDeleteResponse(Message):
    """The results. ``error_code`` concerns the group; if it is set, ``topics`` is empty."""

    error_code: Int16
    throttle_time_ms: Int32 = 0
    topics: Array[OffsetDeleteTopicResult]


OFFSET_DELETE = Api(
    47, "OffsetDelete", OffsetDeleteRequest, OffsetDeleteResponse, versions=(0, 0), flexible=None
)
