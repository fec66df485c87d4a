"""Kafka's ``range`` assignor in the broker."""

from __future__ import annotations

from collections.abc import Mapping

from partage.assignors.server_side.base import (
    ServerSideAssignor,
    SubscribedMember,
    SubscribedTopic,
    TargetAssignment,
    in_order,
)


class ServerSideRange(ServerSideAssignor):
    """Divides each topic into ranges, one for each subscriber in the order of their ids.

    The first subscribers get the extra partitions. Members with the same subscription get the same
    partition numbers of topics with equally many partitions. The assignor ignores the previous
    target: co-partitioning and stickiness exclude each other (KAFKA-16944).
    """

    name = "range"

    def assign(
        self,
        members: Mapping[str, SubscribedMember],
        topics: Mapping[bytes, SubscribedTopic],
        *,
        is_homogeneous: bool,
    ) -> TargetAssignment:
        shares: dict[str, dict[bytes, tuple[int, ...]]] = {m: {} for m in members}
        subscribers: dict[bytes, list[str]] = {topic_id: [] for topic_id in topics}
        for member in in_order(members):
            for topic_id in topics if is_homogeneous else member.subscribed_topic_ids:
                if topic_id in subscribers:
                    subscribers[topic_id].append(member.member_id)
        for topic_id, its in subscribers.items():
            _divide(topic_id, topics[topic_id].partition_count, its, shares)
        return dict(shares)


def _divide(
    topic_id: bytes,
    partition_count: int,
    subscribers: list[str],
    shares: dict[str, dict[bytes, tuple[int, ...]]],
) -> None:
    quota, extras = divmod(partition_count, len(subscribers) or 1)
    begin = 0
    for position, member_id in enumerate(subscribers):
        end = begin + quota + (position < extras)
        if begin == end:
            return
        shares[member_id][topic_id] = tuple(range(begin, end))
        begin = end
