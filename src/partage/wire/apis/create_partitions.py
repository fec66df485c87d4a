"""CreatePartitions (37): gives topics more partitions (KIP-195).

v2 flexible; v3 THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from partage.wire.api import Api
from partage.wire.types import (
    Array,
    Bool,
    Int16,
    Int32,
    Message,
    NullableArray,
    NullableString,
    String,
)


class CreatePartitionsAssignment(Message):
    """The brokers that hold one new partition."""

    broker_ids: Array[Int32]


class CreatePartitionsTopic(Message):
    """A topic and how many partitions it is to have; ``assignments`` None leaves their places."""

    name: String
    count: Int32
    assignments: NullableArray[CreatePartitionsAssignment] = None


class CreatePartitionsRequest(Message):
    """The topics to grow, or only to check."""

    topics: Array[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool = False


class CreatePartitionsResult(Message):
    """The outcome for one topic."""

    name: String
    error_code: Int16
    error_message: NullableString = None


class CreatePartitionsResponse(Message):
    """The outcome for each topic of the request."""

    throttle_time_ms: Int32 = 0
    results: Array[CreatePartitionsResult]


CREATE_PARTITIONS = Api(
    37,
    "CreatePartitions",
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    versions=(0, 3),
    flexible=2,
)
