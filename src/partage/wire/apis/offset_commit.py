"""OffsetCommit (API key 8): stores committed offsets of a group.

v2 retention time; v3 throttle time; v5 no retention time (KIP-211); v6 leader epoch (KIP-320); v7
static members (KIP-345); v8 flexible; v9 member epochs (KIP-848); v10 topic ids instead of
names.
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
    Until,
    Uuid,
)


class OffsetCommitPartition(Message):
    """The offset of the next record to read, and metadata chosen by the committing client."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, Since(6)] = -1
    committed_metadata: NullableString


class OffsetCommitTopic(Message):
    """The offsets of one topic."""

    name: Annotated[String, Until(9)] = ""
    topic_id: Annotated[Uuid, Since(10)] = ZERO_UUID
    partitions: Array[OffsetCommitPartition]


class OffsetCommitRequest(Message):
    """The offsets to commit. Non-members send generation -1 and an empty member id."""

    group_id: String
    generation_id_or_member_epoch: Int32 = -1
    member_id: String
    group_instance_id: Annotated[NullableString, Since(7)] = None
    retention_time_ms: Annotated[Int64, Until(4)] = -1
    topics: Array[OffsetCommitTopic]


class OffsetCommitPartitionResult(Message):
    """The result for one partition."""

    partition_index: Int32
    error_code: Int16


class OffsetCommitTopicResult(Message):
    """The partitions of one topic."""

    name: Annotated[String, Until(9)] = ""
    topic_id: Annotated[Uuid, Since(10)] = ZERO_UUID
    partitions: Array[OffsetCommitPartitionResult]


class OffsetCommitResponse(Message):
    """The result for each partition of the request."""

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: Array[OffsetCommitTopicResult]


OFFSET_COMMIT = Api(
    8,
    "OffsetCommit",
    OffsetCommitRequest,
    OffsetCommitResponse,
    versions=(2, 10),
    flexible=8,
    by_name_max=9,
)
