"""ConsumerGroupDescribe (API key 69): consumer groups with members and assignments (KIP-848).

v1 the type of each member (KIP-1099). Flexible in all versions.
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.apis.common import OPERATIONS_OMITTED
from partage.wire.types import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    Since,
    String,
    Uuid,
)


class ConsumerGroupDescribeRequest(Message):
    """The ids of the groups."""

    group_ids: Array[String]
    include_authorized_operations: Bool = False


class ConsumerGroupMemberTopic(Message):
    """Partitions of one topic, with the topic's id and name."""

    topic_id: Uuid
    topic_name: String
    partitions: Array[Int32]


class ConsumerGroupMemberAssignment(Message):
    """The partitions of one member."""

    topic_partitions: Array[ConsumerGroupMemberTopic]


class DescribedConsumerGroupMember(Message):
    """A member. ``member_type`` is -1 if unknown, 0 for classic, and 1 for consumer."""

    member_id: String
    instance_id: NullableString = None
    rack_id: NullableString = None
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: Array[String]
    subscribed_topic_regex: NullableString = None
    assignment: ConsumerGroupMemberAssignment
    target_assignment: ConsumerGroupMemberAssignment
    member_type: Annotated[Int8, Since(1)] = -1


class DescribedConsumerGroup(Message):
    """A group. ``assignor_name`` is the name of the selected server-side assignor."""

    error_code: Int16
    error_message: NullableString = None
    group_id: String
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: Array[DescribedConsumerGroupMember] = []
    authorized_operations: Int32 = OPERATIONS_OMITTED


class ConsumerGroupDescribeResponse(Message):
    """One entry for each group of the request."""

    throttle_time_ms: Int32 = 0
    groups: Array[DescribedConsumerGroup]


CONSUMER_GROUP_DESCRIBE = Api(
    69,
    "ConsumerGroupDescribe",
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    versions=(0, 1),
    flexible=0,
)
