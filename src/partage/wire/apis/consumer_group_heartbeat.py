"""ConsumerGroupHeartbeat (API key 68): joins, heartbeats and leaves a consumer group (KIP-848).

v1 a topic regex that the broker matches. Flexible in all versions.
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.types import (
    Array,
    Int16,
    Int32,
    Message,
    NullableArray,
    NullableString,
    Since,
    String,
    Uuid,
)


class ConsumerGroupTopicPartitions(Message):
    """Partitions of one topic."""

    topic_id: Uuid
    partitions: Array[Int32]


class ConsumerGroupHeartbeatRequest(Message):
    """The state of a member. None or -1 stands for a field that has not changed."""

    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: NullableString = None
    rack_id: NullableString = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: NullableArray[String] = None
    subscribed_topic_regex: Annotated[NullableString, Since(1)] = None
    server_assignor: NullableString = None
    topic_partitions: NullableArray[ConsumerGroupTopicPartitions] = None


class ConsumerGroupAssignment(Message):
    """The partitions that the member may use immediately."""

    topic_partitions: Array[ConsumerGroupTopicPartitions]


class ConsumerGroupHeartbeatResponse(Message):
    """The state that the member must reach. ``assignment`` is None if it has not changed."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: NullableString = None
    member_id: NullableString = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: ConsumerGroupAssignment | None = None


CONSUMER_GROUP_HEARTBEAT = Api(
    68,
    "ConsumerGroupHeartbeat",
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    versions=(0, 1),
    flexible=0,
)
