"""Assignors of `partage.assignors` as functions for the proposals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from partage.assignors.base import Assignor
from partage.assignors.group_view import Member, Topic
from partage.model.topic_partition import TopicPartition

#: The partitions of each member, by member id.
Shares: TypeAlias = Mapping[str, frozenset[TopicPartition]]


def assign_partitions(
    assignor: Assignor, members: Sequence[Member], topics: Mapping[str, int]
) -> Shares:
    """Return the share of each member.

    Args:
        assignor: The assignor. Its result for the same input is always the same.
        members: All members that may own partitions.
        topics: The partition count of each topic.
    """
    described = {
        name: Topic(name=name, partition_count=count) for name, count in sorted(topics.items())
    }
    result = assignor.assign(members, described)
    return {
        member_id: frozenset(
            TopicPartition(topic, partition)
            for topic, partitions in by_topic.items()
            for partition in partitions
        )
        for member_id, by_topic in result.items()
    }
