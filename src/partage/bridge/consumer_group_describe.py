"""Adapter of ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from partage.bridge.api_adapter import ApiAdapter, ApiCall, limit_text
from partage.coordinator.consumer_group.events import DescribeConsumerGroup
from partage.coordinator.consumer_group.replies import (
    DescribeConsumerGroupReply,
    DescribedConsumerMember,
    DescribedTopicPartitions,
)
from partage.wire.apis.common import GROUP_OPERATIONS, OPERATIONS_OMITTED
from partage.wire.apis.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupMemberAssignment,
    ConsumerGroupMemberTopic,
    DescribedConsumerGroup,
    DescribedConsumerGroupMember,
)

#: Kafka's numbers for the protocol of a member (KIP-1099).
_CLASSIC: Final = 0
_CONSUMER: Final = 1


def to_events(call: ApiCall[ConsumerGroupDescribeRequest]) -> list[DescribeConsumerGroup]:
    """Return one event for each distinct group.

    Duplicates are dropped, because a description can be much larger than the id in the request.
    """
    return [
        DescribeConsumerGroup(at_ms=call.at_ms, reply_to=call.sub_ticket(index), group_id=group_id)
        for index, group_id in enumerate(dict.fromkeys(call.message.group_ids))
    ]


def to_response(
    call: ApiCall[ConsumerGroupDescribeRequest], replies: list[DescribeConsumerGroupReply]
) -> ConsumerGroupDescribeResponse:
    """Return one entry for each distinct group, in the order of the request."""
    is_included = call.message.include_authorized_operations
    operations = GROUP_OPERATIONS if is_included else OPERATIONS_OMITTED
    return ConsumerGroupDescribeResponse(groups=[_group(reply, operations) for reply in replies])


def _group(reply: DescribeConsumerGroupReply, operations: int) -> DescribedConsumerGroup:
    if reply.error:
        return DescribedConsumerGroup(
            error_code=reply.error,
            error_message=limit_text(reply.error_message),
            group_id=reply.group_id,
        )
    return DescribedConsumerGroup(
        error_code=reply.error,
        group_id=reply.group_id,
        group_state=reply.state,
        group_epoch=reply.group_epoch,
        assignment_epoch=reply.assignment_epoch,
        assignor_name=reply.assignor,
        members=[_member(member) for member in reply.members],
        authorized_operations=operations,
    )


def _member(member: DescribedConsumerMember) -> DescribedConsumerGroupMember:
    """Return a member. Kafka sends an empty regex, not null, for a member without one."""
    return DescribedConsumerGroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topics),
        subscribed_topic_regex=member.subscribed_regex or "",
        assignment=_assignment(member.assignment),
        target_assignment=_assignment(member.target_assignment),
        member_type=_CLASSIC if member.is_classic else _CONSUMER,
    )


def _assignment(topics: Sequence[DescribedTopicPartitions]) -> ConsumerGroupMemberAssignment:
    return ConsumerGroupMemberAssignment(
        topic_partitions=[
            ConsumerGroupMemberTopic(
                topic_id=its.topic_id, topic_name=its.topic, partitions=list(its.partitions)
            )
            for its in topics
        ]
    )


CONSUMER_GROUP_DESCRIBE_ADAPTER = ApiAdapter(CONSUMER_GROUP_DESCRIBE, to_events, to_response)
