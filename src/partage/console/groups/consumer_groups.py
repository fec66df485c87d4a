"""Descriptions of groups with the consumer protocol (KIP-848)."""

from __future__ import annotations

from typing import Final

from partage.console.groups.raw_groups import CONSUMER
from partage.model.groups import GroupDescription, MemberDescription, Node, TopicPartitions
from partage.wire.apis.consumer_group_describe import (
    ConsumerGroupMemberAssignment,
    DescribedConsumerGroup,
    DescribedConsumerGroupMember,
)

_MEMBER_TYPES: Final = {0: "Classic", 1: "Consumer"}


def describe_consumer_group(group: DescribedConsumerGroup, node: Node | None) -> GroupDescription:
    """Return the description of a group with its epochs and targets, without offsets."""
    return GroupDescription(
        group=group.group_id,
        protocol_type=CONSUMER,
        type="Consumer",
        protocol=group.assignor_name or None,
        state=group.group_state,
        coordinator=node,
        members=[_member(member) for member in group.members],
        offsets=[],
        total_lag=0,
        group_epoch=group.group_epoch,
        target_epoch=group.assignment_epoch,
    )


def _member(member: DescribedConsumerGroupMember) -> MemberDescription:
    return MemberDescription(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        partitions=_partitions(member.assignment),
        subscription=sorted(member.subscribed_topic_names),
        metadata_bytes=None,
        assignment_bytes=None,
        rack=member.rack_id,
        protocol=_MEMBER_TYPES.get(member.member_type),
        epoch=member.member_epoch,
        target=_partitions(member.target_assignment),
        subscribed_regex=member.subscribed_topic_regex,
    )


def _partitions(assignment: ConsumerGroupMemberAssignment) -> list[TopicPartitions]:
    return sorted(
        (
            TopicPartitions(each.topic_name, sorted(each.partitions))
            for each in assignment.topic_partitions
        ),
        key=lambda each: each.topic,
    )
