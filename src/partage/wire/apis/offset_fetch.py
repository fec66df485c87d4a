"""OffsetFetch (API key 9): the committed offsets of groups.

v2 all topics, and an error for the whole request (KIP-88); v3 throttle time; v5 leader epoch
(KIP-320); v6 flexible; v7 require_stable (KIP-447); v8 several groups (KIP-709); v9 member epochs
(KIP-848); v10 topic ids instead of names.
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.types import (
    ZERO_UUID,
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    Nullable,
    NullableArray,
    NullableString,
    Since,
    String,
    Until,
    Uuid,
)


class OffsetFetchTopic(Message):
    """The requested partitions of one topic."""

    name: Annotated[String, Until(9)] = ""
    topic_id: Annotated[Uuid, Since(10)] = ZERO_UUID
    partition_indexes: Array[Int32]


class OffsetFetchGroup(Message):
    """A requested group. ``topics`` None requests all topics."""

    group_id: String
    member_id: Annotated[NullableString, Since(9)] = None
    member_epoch: Annotated[Int32, Since(9)] = -1
    topics: NullableArray[OffsetFetchTopic]


class OffsetFetchRequest(Message):
    """The requested groups: ``group_id`` and ``topics`` up to v7, ``groups`` from v8 on."""

    group_id: Annotated[String, Until(7)] = ""
    topics: Annotated[NullableArray[OffsetFetchTopic], Until(7), Nullable(2)] = []
    groups: Annotated[Array[OffsetFetchGroup], Since(8)] = []
    require_stable: Annotated[Bool, Since(7)] = False


class OffsetFetchPartitionResult(Message):
    """A committed offset, -1 if there is none."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, Since(5)] = -1
    metadata: NullableString
    error_code: Int16


class OffsetFetchTopicResult(Message):
    """The offsets of one topic."""

    name: Annotated[String, Until(9)] = ""
    topic_id: Annotated[Uuid, Since(10)] = ZERO_UUID
    partitions: Array[OffsetFetchPartitionResult]


class OffsetFetchGroupResult(Message):
    """The offsets of one group."""

    group_id: String
    topics: Array[OffsetFetchTopicResult]
    error_code: Int16 = 0


class OffsetFetchResponse(Message):
    """The offsets: ``topics`` and ``error_code`` for one group up to v7, ``groups`` from v8 on."""

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: Annotated[Array[OffsetFetchTopicResult], Until(7)] = []
    error_code: Annotated[Int16, Since(2), Until(7)] = 0
    groups: Annotated[Array[OffsetFetchGroupResult], Since(8)] = []


OFFSET_FETCH = Api(
    9,
    "OffsetFetch",
    OffsetFetchRequest,
    OffsetFetchResponse,
    versions=(1, 10),
    flexible=6,
    by_name_max=9,
)
