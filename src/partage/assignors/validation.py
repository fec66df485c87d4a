"""The validation of assignments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from partage.assignors.cooperation import resolve_owners

if TYPE_CHECKING:
    from partage.assignors.group_view import Assignment, Member, Topic


class InvalidAssignmentError(Exception):
    """Raised if an assignor returned an invalid assignment. No member gets any of it."""


def check_assignment(
    members: Sequence[Member],
    topics: Mapping[str, Topic],
    assignment: Assignment,
    *,
    replicas: int = 1,
    cooperative: bool = False,
) -> None:
    """Raise `InvalidAssignmentError` if an assignment is invalid.

    Each partition with subscribers must go to ``replicas`` distinct subscribers, or to all of them
    if there are fewer. A ``cooperative`` assignment may leave out partitions that a member still
    owns. It must not assign them to another member.

    Args:
        members: All members of the group.
        topics: The subscribed topics, by name.
        assignment: The assignment to check: partitions by member id and topic.
        replicas: The number of members for each partition.
        cooperative: True to apply the rules of a cooperative rebalance.

    Raises:
        InvalidAssignmentError: The message is meant for the author of the assignor.
    """
    by_id = {member.member_id: member for member in members}
    given: Counter[tuple[str, int]] = Counter()  # plain tuples, see `TopicPartition`
    for member_id, mine in assignment.items():
        if member_id not in by_id:
            raise InvalidAssignmentError(f"{member_id!r} is not a member of the group")
        for topic, partitions in mine.items():
            _check_topic(by_id[member_id], topic, topics, partitions)
            for partition in partitions:
                given[topic, partition] += 1
    subscribers = Counter(name for member in members for name in set(member.topics))
    held = resolve_owners(members) if cooperative else {}
    for name, its in topics.items():
        wanted = min(replicas, subscribers[name])
        for partition in range(its.partition_count):
            got = given[name, partition]
            is_held = cooperative and partition in held.get(name, {})
            if got > wanted or (got < wanted and not is_held):
                raise InvalidAssignmentError(
                    f"{name}-{partition} is assigned to {got} members, not {wanted}"
                )
    if cooperative and replicas == 1:
        _check_cooperative_moves(members, assignment, held)


def _check_topic(
    member: Member, topic: str, topics: Mapping[str, Topic], partitions: Sequence[int]
) -> None:
    who = f"{member.member_id!r} is assigned {topic}"
    if topic not in member.topics:
        raise InvalidAssignmentError(f"{who}, to which it is not subscribed")
    if topic not in topics:
        raise InvalidAssignmentError(f"{who}, which does not exist")
    count = topics[topic].partition_count
    for partition in partitions:
        if not 0 <= partition < count:
            raise InvalidAssignmentError(f"{who}-{partition}, and {topic} has {count} partitions")
    if len(set(partitions)) < len(partitions):
        raise InvalidAssignmentError(f"{who} with a duplicate partition: {sorted(partitions)}")


def _check_cooperative_moves(
    members: Sequence[Member], assignment: Assignment, held: Mapping[str, Mapping[int, int]]
) -> None:
    for position, member in enumerate(members):
        for topic, partitions in assignment.get(member.member_id, {}).items():
            of_topic = held.get(topic, {})
            for partition in partitions:
                if of_topic.get(partition, position) != position:
                    raise InvalidAssignmentError(
                        f"{topic}-{partition} goes to {member.member_id!r} while another member "
                        "owns it; end a cooperative assignor with hold_back()"
                    )
