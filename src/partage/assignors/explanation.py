"""The reasons for the placement of partitions, from the ownership before and after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from partage.assignors.group_view import Assignment, Member, Topic
from partage.model.topic_partition import TopicPartition


class PartitionReason(msgspec.Struct, frozen=True, kw_only=True):
    """The reason for the placement of one partition.

    ``member_ids`` are the members that have it now, ``owner_ids`` the members that claimed to own
    it.
    """

    topic: str
    partition: int
    member_ids: tuple[str, ...]
    owner_ids: tuple[str, ...]
    reason: str = msgspec.field(name="why")  # the key in JSON


def explain_assignment(
    members: Sequence[Member], topics: Mapping[str, Topic], assignment: Assignment
) -> list[PartitionReason]:
    """Return one reason for each partition, in the order of topics and partitions.

    Args:
        members: All members of the group, with the partitions that they owned.
        topics: The subscribed topics, by name.
        assignment: The assignment to explain: partitions by member id and topic.
    """
    before = _by_partition((member.member_id, member.owned) for member in members)
    after = _by_partition((m.member_id, assignment.get(m.member_id, {})) for m in members)
    wanting = {member.member_id: frozenset(member.topics) for member in members}
    generations = {member.member_id: member.generation for member in members}
    reasons = []
    for name in sorted(topics):
        for partition in range(topics[name].partition_count):
            key = TopicPartition(name, partition)
            had, has = before.get(key, ()), after.get(key, ())
            reasons.append(
                PartitionReason(
                    topic=name,
                    partition=partition,
                    member_ids=has,
                    owner_ids=had,
                    reason=_why(name, had, has, wanting, generations),
                )
            )
    return reasons


def _by_partition(
    shares: Iterable[tuple[str, Mapping[str, Sequence[int]]]],
) -> dict[TopicPartition, tuple[str, ...]]:
    found: dict[TopicPartition, tuple[str, ...]] = {}
    for member_id, share in shares:
        for topic, partitions in share.items():
            for partition in partitions:
                key = TopicPartition(topic, partition)
                found[key] = (*found.get(key, ()), member_id)
    return found


def _why(
    topic: str,
    had: tuple[str, ...],
    has: tuple[str, ...],
    wanting: Mapping[str, frozenset[str]],
    generations: Mapping[str, int],
) -> str:
    if not any(topic in topics for topics in wanting.values()):
        return "no member subscribes to the topic"
    if not has:
        return f"held back until it is revoked by {_names(had)}" if had else "assigned to no member"
    if not had:
        return "no member owned it: it is new, or its owner left or revoked it"
    if set(had) == set(has):
        return "stays with its owner"
    if len(had) > 1 and len(has) == 1 and has[0] in had:
        others = (generations[owner] for owner in had if owner != has[0])
        if generations[has[0]] > max(others):
            return f"claimed by {_names(had)}: the claim of the latest generation holds"
    gone = [owner for owner in had if owner not in has and topic not in wanting[owner]]
    if gone:
        return f"no longer subscribed to by {_names(gone)}"
    if set(has) < set(had):
        return f"stays with {_names(has)}, and no longer with {_names(set(had) - set(has))}"
    if set(had) & set(has):
        return f"stays with {_names(set(had) & set(has))}, with new replicas on the other members"
    return f"moved from {_names(had)} to balance the group"


def _names(member_ids: Iterable[str]) -> str:
    return " and ".join(sorted(member_ids))
