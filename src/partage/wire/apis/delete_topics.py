"""DeleteTopics (API key 20): deletes topics.

v1 throttle time; v3 TOPIC_DELETION_DISABLED (KIP-322); v4 flexible; v5 error message,
THROTTLING_QUOTA_EXCEEDED (KIP-599); v6 topic ids (KIP-516).
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.types import (
    ZERO_UUID,
    Array,
    Int16,
    Int32,
    Message,
    Nullable,
    NullableString,
    Since,
    String,
    Until,
    Uuid,
)


class DeleteTopicsTopic(Message):
    """A topic given by name, or by id with a null name."""

    name: NullableString = None
    topic_id: Uuid = ZERO_UUID


class DeleteTopicsRequest(Message):
    """The topics to delete: ``topic_names`` up to v5, ``topics`` from v6 on."""

    topics: Annotated[Array[DeleteTopicsTopic], Since(6)] = []
    topic_names: Annotated[Array[String], Until(5)] = []
    timeout_ms: Int32


class DeleteTopicsResult(Message):
    """The result for one topic."""

    name: Annotated[NullableString, Nullable(6)]
    topic_id: Annotated[Uuid, Since(6)] = ZERO_UUID
    error_code: Int16
    error_message: Annotated[NullableString, Since(5)] = None


class DeleteTopicsResponse(Message):
    """The result for each topic of the request."""

    throttle_time_ms: Int32 = 0
    responses: Array[DeleteTopicsResult]


DELETE_TOPICS = Api(
    20, "DeleteTopics", DeleteTopicsRequest, DeleteTopicsResponse, versions=(1, 6), flexible=4
)
