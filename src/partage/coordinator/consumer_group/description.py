"""ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Mapping

from partage.coordinator.consumer_group.catalogue import Catalogue
from partage.coordinator.consumer_group.group import ConsumerGroup
from partage.coordinator.consumer_group.member import ConsumerMember
from partage.coordinator.consumer_group.partitions import TopicId
from partage.coordinator.consumer_group.replies import (
    DescribeConsumerGroupReply,
    DescribedConsumerMember,
    DescribedTopicPartitions,
)
from partage.model.settings import ConsumerGroupSettings


def describe(
    group: ConsumerGroup, catalogue: Catalogue, settings: ConsumerGroupSettings
) -> DescribeConsumerGroupReply:
    """Return the description of a consumer group."""
    return DescribeConsumerGroupReply(
        group_id=group.id,
        state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=group.preferred_assignor(catalogue, settings),
        members=tuple(_member(member, catalogue) for member in group.members.values()),
    )


def _member(member: ConsumerMember, catalogue: Catalogue) -> DescribedConsumerMember:
    record = member.subscription
    held: dict[TopicId, set[int]] = {}
    for part in (member.assignment.assigned, member.assignment.pending_revocation):
        for topic_id, epochs in part.items():
            held.setdefault(topic_id, set()).update(epochs)
    return DescribedConsumerMember(
        member_id=member.id,
        instance_id=record.instance_id,
        rack_id=record.rack_id,
        member_epoch=member.epoch,
        client_id=record.client_id,
        client_host=record.client_host,
        subscribed_topics=record.subscribed_topics,
        subscribed_regex=record.subscribed_regex,
        assignment=_partitions({t: tuple(sorted(p)) for t, p in held.items()}, catalogue),
        target_assignment=_partitions(member.target, catalogue),
        is_classic=record.classic is not None,
    )


def _partitions(
    partitions: Mapping[TopicId, tuple[int, ...]], catalogue: Catalogue
) -> tuple[DescribedTopicPartitions, ...]:
    """Return the partitions with topic names; topics that were deleted are left out."""
    found = []
    for topic_id, numbers in partitions.items():
        topic = catalogue.topic_by_id(topic_id)
        if topic is not None:
            found.append(
                DescribedTopicPartitions(topic_id=topic_id, topic=topic.name, partitions=numbers)
            )
    return tuple(sorted(found, key=lambda each: each.topic))
