"""WriteTxnMarkers (API key 27): ends transactions on partitions (KIP-98).

The coordinator's broker and the admin tool for hanging transactions (KIP-664) send it. v1 flexible;
v2 transaction version (KIP-1228).
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.types import Array, Bool, Int8, Int16, Int32, Int64, Message, Since, String


class WritableTxnMarkerTopic(Message):
    """The partitions of one topic to write a marker to."""

    name: String
    partition_indexes: Array[Int32]


class WritableTxnMarker(Message):
    """A marker; ``transaction_result`` is True to commit and False to abort."""

    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    topics: Array[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Annotated[Int8, Since(2)] = 0


class WriteTxnMarkersRequest(Message):
    """The markers to write."""

    markers: Array[WritableTxnMarker]


class WritableTxnMarkerPartitionResult(Message):
    """The result for one partition."""

    partition_index: Int32
    error_code: Int16


class WritableTxnMarkerTopicResult(Message):
    """The results for the partitions of one topic."""

    name: String
    partitions: Array[WritableTxnMarkerPartitionResult]


class WritableTxnMarkerResult(Message):
    """The results for one producer."""

    producer_id: Int64
    topics: Array[WritableTxnMarkerTopicResult]


class WriteTxnMarkersResponse(Message):
    """The result for each producer of the request."""

    markers: Array[WritableTxnMarkerResult]


WRITE_TXN_MARKERS = Api(
    27,
    "WriteTxnMarkers",
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    versions=(1, 2),
    flexible=1,
)
