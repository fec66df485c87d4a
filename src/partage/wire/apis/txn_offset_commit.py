"""TxnOffsetCommit (API key 28): commits offsets of a group within a transaction.

v2 leader epoch (KIP-320); v3 flexible, with the member's generation and id (KIP-447); v4 and v5 the
same bytes, but v5 adds the group to the transaction (KIP-890). v6 with topic ids is not supported.
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.types import (
    Array,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Since,
    String,
)


class TxnOffsetCommitPartition(Message):
    """The offset of the next record to read, and metadata chosen by the committing client."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, Since(2)] = -1
    committed_metadata: NullableString


class TxnOffsetCommitTopic(Message):
    """The offsets of one topic."""

    name: String
    partitions: Array[TxnOffsetCommitPartition]


class TxnOffsetCommitRequest(Message):
    """The offsets to commit when the transaction commits.

    Clients before v3 state no member. Their commits are not fenced by the group's generation.
    """

    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Annotated[Int32, Since(3)] = -1
    member_id: Annotated[String, Since(3)] = ""
    group_instance_id: Annotated[NullableString, Since(3)] = None
    topics: Array[TxnOffsetCommitTopic]


class TxnOffsetCommitPartitionResult(Message):
    """The result for one partition."""

    partition_index: Int32
    error_code: Int16


class TxnOffsetCommitTopicResult(Message):
    """The partitions of one topic."""

    name: String
    partitions: Array[TxnOffsetCommitPartitionResult]


class TxnOffsetCommitResponse(Message):
    """The result for each partition of the request."""

    throttle_time_ms: Int32 = 0
    topics: Array[TxnOffsetCommitTopicResult]


TXN_OFFSET_COMMIT = Api(
    28,
    "TxnOffsetCommit",
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    versions=(0, 5),
    flexible=3,
)
