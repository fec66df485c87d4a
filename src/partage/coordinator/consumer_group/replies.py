"""Replies of consumer groups; the bridge converts them to the client's API version."""

from __future__ import annotations

import msgspec

from partage.coordinator.consumer_group.partitions import PartitionSet, TopicId
from partage.coordinator.consumer_group.states import ConsumerGroupState
from partage.model.errors import ErrorCode


class ConsumerGroupHeartbeatReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Reply to a ConsumerGroupHeartbeat. ``assignment`` is None if it is unchanged."""

    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: PartitionSet | None = None


class DescribedTopicPartitions(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Partitions of a topic in a description."""

    topic_id: TopicId
    topic: str
    partitions: tuple[int, ...]


class DescribedConsumerMember(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A member as ConsumerGroupDescribe shows it. Deleted topics are left out, as in Kafka."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topics: tuple[str, ...]
    subscribed_regex: str | None
    assignment: tuple[DescribedTopicPartitions, ...]
    target_assignment: tuple[DescribedTopicPartitions, ...]
    is_classic: bool = False  # uses the classic protocol


class DescribeConsumerGroupReply(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Reply to a DescribeConsumerGroup."""

    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    group_id: str
    state: ConsumerGroupState = ConsumerGroupState.DEAD
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumerMember, ...] = ()
