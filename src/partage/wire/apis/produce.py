"""Produce (API key 0): appends record batches to partitions.

v3 transactional ids and message format v2 (KIP-98); v5 log start offset in the response; v7 zstd
(KIP-110); v8 errors of single records (KIP-467); v9 flexible; v10 current leader (KIP-951); v11
TRANSACTION_ABORTABLE and v12 implicit addition of partitions to a transaction (KIP-890). v13 with
topic ids instead of names (KIP-516) is not supported.

With ``acks`` 0 there is no response.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from partage.wire.api import Api
from partage.wire.apis.common import CurrentLeader, NodeEndpoint
from partage.wire.codec import Allowance
from partage.wire.types import (
    Array,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    RecordBytes,
    Since,
    String,
    Tagged,
)


class ProducePartition(Message):
    """The record batches for one partition."""

    index: Int32
    records: RecordBytes


class ProduceTopic(Message):
    """The batches for the partitions of one topic."""

    name: String
    partition_data: Array[ProducePartition]


class ProduceRequest(Message):
    """Record batches to append; ``acks`` is 0, 1 or -1 for all in-sync replicas."""

    transactional_id: NullableString = None
    acks: Int16
    timeout_ms: Int32
    topic_data: Array[ProduceTopic]


class ProduceRecordError(Message):
    """A record that caused the rejection of its batch, by its index in the batch."""

    batch_index: Int32
    batch_index_error_message: NullableString = None


class ProducePartitionResult(Message):
    """The offset of the appended batches. ``log_append_time_ms`` is -1 with CreateTime."""

    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    record_errors: Annotated[Array[ProduceRecordError], Since(8)] = []
    error_message: Annotated[NullableString, Since(8)] = None
    current_leader: Annotated[CurrentLeader, Tagged(0, since=10)] = field(
        default_factory=CurrentLeader
    )


class ProduceTopicResult(Message):
    """The result for one topic."""

    name: String
    partition_responses: Array[ProducePartitionResult]


class ProduceResponse(Message):
    """The result for each partition of the request."""

    responses: Array[ProduceTopicResult]
    throttle_time_ms: Int32 = 0
    node_endpoints: Annotated[Array[NodeEndpoint], Tagged(0, since=10)] = []


PRODUCE = Api(
    0,
    "Produce",
    ProduceRequest,
    ProduceResponse,
    versions=(3, 12),
    flexible=9,
    # Each partition comes with a record batch, which has at least 61 bytes. Many such requests are
    # processed at the same time.
    allowance=Allowance(1_000, 64, 12_000),
)
