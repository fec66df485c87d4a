"""CreatePartitions (API key 37): adds partitions to topics (KIP-195).

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
    """The brokers of one new partition."""

    broker_ids: Array[Int32]


class CreatePartitionsTopic(Message):
    """A topic and its new partition count. ``assignments`` None leaves placement to the broker."""

    name: String
    count: Int32
    assignments: NullableArray[CreatePartitionsAssignment] = None


class CreatePartitionsRequest(Message):
    """The topics to extend, or only to validate."""

    topics: Array[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool = False


class CreatePartitionsResult(Message):
    """The result for one topic."""

    name: String
    error_code: Int16
    error_message: NullableString = None


class CreatePartitionsResponse(Message):
    """The result for each topic of the request."""

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
