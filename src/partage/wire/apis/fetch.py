"""Fetch (API key 1): reads record batches from partitions.

v4 isolation level and aborted transactions (KIP-98); v5 log start offset (KIP-107); v7 fetch
sessions (KIP-227); v9 leader epoch (KIP-320); v10 zstd (KIP-110); v11 rack of the consumer
(KIP-392); v12 flexible, diverging epochs (KIP-595); v13 topic ids instead of names (KIP-516); v14
tiered storage errors (KIP-405); v15 replica state (KIP-903); v16 current leader (KIP-951); v17
directory ids (KIP-853). Versions before v4 use older record formats and are not supported.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from partage.wire.api import Api
from partage.wire.apis.common import CurrentLeader, NodeEndpoint
from partage.wire.types import (
    ZERO_UUID,
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableArray,
    NullableString,
    RecordBytes,
    Since,
    String,
    Tagged,
    Until,
    Uuid,
)


class FetchReplicaState(Message):
    """The follower that sends the request; both fields are -1 for a consumer."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchPartition(Message):
    """A partition to read, and its fetch offset."""

    partition: Int32
    current_leader_epoch: Annotated[Int32, Since(9)] = -1
    fetch_offset: Int64
    last_fetched_epoch: Annotated[Int32, Since(12)] = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    partition_max_bytes: Int32
    replica_directory_id: Annotated[Uuid, Tagged(0, since=17)] = ZERO_UUID


class FetchTopic(Message):
    """The partitions to read of one topic."""

    topic: Annotated[String, Until(12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = ZERO_UUID
    partitions: Array[FetchPartition]


class FetchForgottenTopic(Message):
    """Partitions to remove from the fetch session."""

    topic: Annotated[String, Until(12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = ZERO_UUID
    partitions: Array[Int32]


class FetchRequest(Message):
    """The partitions to read, and the wait time and size limits.

    ``session_epoch`` -1 requests no fetch session. ``isolation_level`` is 0 for read_uncommitted
    and 1 for read_committed.
    """

    cluster_id: Annotated[NullableString, Tagged(0, since=12)] = None
    replica_id: Annotated[Int32, Until(14)] = -1
    replica_state: Annotated[FetchReplicaState, Tagged(1, since=15)] = field(
        default_factory=FetchReplicaState
    )
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFFFFFF
    isolation_level: Int8 = 0
    session_id: Annotated[Int32, Since(7)] = 0
    session_epoch: Annotated[Int32, Since(7)] = -1
    topics: Array[FetchTopic]
    forgotten_topics_data: Annotated[Array[FetchForgottenTopic], Since(7)] = []
    rack_id: Annotated[String, Since(11)] = ""


class FetchEpochEndOffset(Message):
    """The largest epoch, and its end offset, up to which the logs of fetcher and leader agree."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


class FetchSnapshotId(Message):
    """A snapshot to fetch instead of records."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


class FetchAbortedTransaction(Message):
    """An aborted transaction: its producer, and its first offset."""

    producer_id: Int64
    first_offset: Int64


class FetchPartitionResult(Message):
    """The batches of one partition. A byte limit may truncate the last one."""

    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    diverging_epoch: Annotated[FetchEpochEndOffset, Tagged(0, since=12)] = field(
        default_factory=FetchEpochEndOffset
    )
    current_leader: Annotated[CurrentLeader, Tagged(1, since=12)] = field(
        default_factory=CurrentLeader
    )
    snapshot_id: Annotated[FetchSnapshotId, Tagged(2, since=12)] = field(
        default_factory=FetchSnapshotId
    )
    aborted_transactions: NullableArray[FetchAbortedTransaction] = None
    preferred_read_replica: Annotated[Int32, Since(11)] = -1
    records: RecordBytes


class FetchTopicResult(Message):
    """The partitions of one topic."""

    topic: Annotated[String, Until(12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = ZERO_UUID
    partitions: Array[FetchPartitionResult]


class FetchResponse(Message):
    """Record batches by partition. ``session_id`` 0 means that there is no fetch session."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(7)] = 0
    session_id: Annotated[Int32, Since(7)] = 0
    responses: Array[FetchTopicResult]
    node_endpoints: Annotated[Array[NodeEndpoint], Tagged(0, since=16)] = []


FETCH = Api(1, "Fetch", FetchRequest, FetchResponse, versions=(4, 17), flexible=12)
