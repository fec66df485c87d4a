"""The validation of target assignments."""

from __future__ import annotations

from collections.abc import Mapping

from partage.assignors.server_side.base import SubscribedMember, SubscribedTopic, TargetAssignment
from partage.assignors.validation import InvalidAssignmentError


def check_target(
    members: Mapping[str, SubscribedMember],
    topics: Mapping[bytes, SubscribedTopic],
    target: TargetAssignment,
) -> None:
    """Raise `InvalidAssignmentError` if a target assignment is invalid.

    Each partition of each topic must go to exactly one subscriber. It takes linear time.

    Raises:
        InvalidAssignmentError: The message is meant for the author of the assignor.
    """
    if target.keys() != members.keys():
        strange = sorted(target.keys() ^ members.keys())[0]
        problem = "has no entry" if strange in members else "is not a member of the group"
        raise InvalidAssignmentError(f"{strange!r} {problem}")
    assigned: dict[bytes, list[int]] = {topic_id: [] for topic_id in topics}
    for member_id, share in target.items():
        if foreign := share.keys() - members[member_id].subscribed_topic_ids:
            name = min(_name(topics, topic_id) for topic_id in foreign)
            raise InvalidAssignmentError(
                f"{member_id!r} is assigned {name}, to which it is not subscribed"
            )
        for topic_id, partitions in share.items():
            if topic_id not in assigned:
                raise InvalidAssignmentError(
                    f"{member_id!r} is assigned {topic_id.hex()}, which does not exist"
                )
            assigned[topic_id] += partitions
    for topic_id, numbers in assigned.items():
        _check_topic(topics[topic_id], numbers)


def _name(topics: Mapping[bytes, SubscribedTopic], topic_id: bytes) -> str:
    return topics[topic_id].name if topic_id in topics else topic_id.hex()


def _check_topic(topic: SubscribedTopic, numbers: list[int]) -> None:
    count = topic.partition_count
    existing = frozenset(range(count))
    if len(numbers) == count and existing.issuperset(numbers) and len(set(numbers)) == count:
        return
    if unknown := sorted(set(numbers) - existing):
        raise InvalidAssignmentError(
            f"{topic.name}-{unknown[0]} is assigned, and {topic.name} has {count} partitions"
        )
    if missing := sorted(existing.difference(numbers)):
        raise InvalidAssignmentError(f"{topic.name}-{missing[0]} is assigned to no member")
    repeated = next(number for number in numbers if numbers.count(number) > 1)
    raise InvalidAssignmentError(f"{topic.name}-{repeated} is assigned more than once")
