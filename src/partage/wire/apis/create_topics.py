"""CreateTopics (API key 19): creates topics.

v2 throttle time; v4 -1 selects the broker's default partition and replica counts (KIP-464); v5
flexible, configs in the response (KIP-525); v6 THROTTLING_QUOTA_EXCEEDED (KIP-599); v7 topic ids
(KIP-516).
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.types import (
    ZERO_UUID,
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableArray,
    NullableString,
    Since,
    String,
    Tagged,
    Uuid,
)


class CreatableReplicaAssignment(Message):
    """The brokers of one partition, its preferred leader first."""

    partition_index: Int32
    broker_ids: Array[Int32]


class CreatableTopicConfig(Message):
    """A config of the topic."""

    name: String
    value: NullableString


class CreatableTopic(Message):
    """A topic to create. Both counts are -1 if ``assignments`` lists the partitions."""

    name: String
    num_partitions: Int32
    replication_factor: Int16
    assignments: Array[CreatableReplicaAssignment]
    configs: Array[CreatableTopicConfig]


class CreateTopicsRequest(Message):
    """The topics to create, or only to validate."""

    topics: Array[CreatableTopic]
    timeout_ms: Int32 = 60_000
    validate_only: Bool = False


class CreatedTopicConfig(Message):
    """A config of the created topic."""

    name: String
    value: NullableString
    read_only: Bool
    config_source: Int8 = -1
    is_sensitive: Bool


class CreateTopicsResult(Message):
    """The result for one topic. ``configs`` is None if the client may not read them."""

    name: String
    topic_id: Annotated[Uuid, Since(7)] = ZERO_UUID
    error_code: Int16
    error_message: NullableString = None
    topic_config_error_code: Annotated[Int16, Tagged(0, since=5)] = 0
    num_partitions: Annotated[Int32, Since(5)] = -1
    replication_factor: Annotated[Int16, Since(5)] = -1
    configs: Annotated[NullableArray[CreatedTopicConfig], Since(5)] = []


class CreateTopicsResponse(Message):
    """The result for each topic of the request."""

    throttle_time_ms: Int32 = 0
    topics: Array[CreateTopicsResult]


CREATE_TOPICS = Api(
    19, "CreateTopics", CreateTopicsRequest, CreateTopicsResponse, versions=(2, 7), flexible=5
)
