"""DeleteRecords (API key 21): deletes the oldest records of partitions (KIP-107).

v2 flexible.
"""

from __future__ import annotations

from partage.wire.api import Api
from partage.wire.types import Array, Int16, Int32, Int64, Message, String


class DeleteRecordsPartition(Message):
    """A partition and the offset before which records are deleted; -1 is the high watermark."""

    partition_index: Int32
    offset: Int64


class DeleteRecordsTopic(Message):
    """The partitions of one topic."""

    name: String
    partitions: Array[DeleteRecordsPartition]


class DeleteRecordsRequest(Message):
    """The partitions whose records are deleted."""

    topics: Array[DeleteRecordsTopic]
    timeout_ms: Int32


class DeleteRecordsPartitionResult(Message):
    """The new start offset of a partition. ``low_watermark`` is -1 after an error."""

    partition_index: Int32
    low_watermark: Int64
    error_code: Int16


class DeleteRecordsTopicResult(Message):
    """The partitions of one topic."""

    name: String
    partitions: Array[DeleteRecordsPartitionResult]


class DeleteRecordsResponse(Message):
    """The result for each partition of the request."""

    throttle_time_ms: Int32 = 0
    topics: Array[DeleteRecordsTopicResult]


DELETE_RECORDS = Api(
    21, "DeleteRecords", DeleteRecordsRequest, DeleteRecordsResponse, versions=(0, 2), flexible=2
)
