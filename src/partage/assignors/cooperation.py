"""The last step of a cooperative assignor: no partition moves directly between owners (KIP-429).

A partition that has to move is first assigned to no member. Its owner sees that it lost it, revokes
it and rejoins. In the next generation the partition has no owner and goes to its new member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from partage.assignors.claims import OwnershipClaim, PartitionOwners, resolve_ownership

if TYPE_CHECKING:
    from partage.assignors.group_view import Assignment, Member


def hold_back(members: Sequence[Member], assignment: Assignment) -> dict[str, dict[str, list[int]]]:
    """Remove from an assignment the partitions that another member still owns.

    Args:
        members: All members of the group, with the partitions that they own.
        assignment: The partitions by member id and topic.

    Returns:
        The rest of the assignment, with every member.
    """
    return hold_back_owned(members, assignment, resolve_owners(members))


def resolve_owners(members: Sequence[Member]) -> dict[str, dict[int, int]]:
    """Return the owner of each partition, from the members' subscriptions."""
    return resolve_ownership(
        [OwnershipClaim(member.generation, member.owned) for member in members]
    )


def hold_back_owned(
    members: Sequence[Member],
    assignment: Assignment,
    holders: PartitionOwners,
) -> dict[str, dict[str, list[int]]]:
    """Like `hold_back`, for known owners. Disputed partitions are removed too."""
    return {
        member.member_id: without_held(assignment.get(member.member_id, {}), position, holders)
        for position, member in enumerate(members)
    }


def without_held(
    share: Mapping[str, Sequence[int]], position: int, holders: PartitionOwners
) -> dict[str, list[int]]:
    """Return the partitions of one member that no other member owns."""
    nobody: Mapping[int, int] = {}
    mine: dict[str, list[int]] = {}
    for topic, partitions in share.items():
        of_topic = holders.get(topic, nobody)
        free = [p for p in partitions if of_topic.get(p, position) == position]
        if free:
            mine[topic] = free
    return mine
