"""DescribeProducers (API key 61): the idempotent producers of partitions (KIP-664).

Flexible in all versions.
"""

from __future__ import annotations

from partage.wire.api import Api
from partage.wire.types import Array, Int16, Int32, Int64, Message, NullableString, String


class DescribeProducersTopic(Message):
    """A topic and its requested partitions."""

    name: String
    partition_indexes: Array[Int32]


class DescribeProducersRequest(Message):
    """The partitions."""

    topics: Array[DescribeProducersTopic]


class ActiveProducer(Message):
    """A producer. The last append to the partition determines its fields; -1 is unknown."""

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1


class DescribedProducersPartition(Message):
    """The producers of a partition."""

    partition_index: Int32
    error_code: Int16
    error_message: NullableString = None
    active_producers: Array[ActiveProducer]


class DescribedProducersTopic(Message):
    """The partitions of a topic."""

    name: String
    partitions: Array[DescribedProducersPartition]


class DescribeProducersResponse(Message):
    """The producers of the requested partitions."""

    throttle_time_ms: Int32 = 0
    topics: Array[DescribedProducersTopic]


DESCRIBE_PRODUCERS = Api(
    61,
    "DescribeProducers",
    DescribeProducersRequest,
    DescribeProducersResponse,
    versions=(0, 0),
    flexible=0,
)
