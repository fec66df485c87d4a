"""The last step of a cooperative assignor: nothing moves from owner to owner at once (KIP-429).

What is to move is first given to nobody. Its owner sees that it has lost it, revokes it and joins
again; in the generation that follows nobody owns it, and it goes where it should.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from partage.assignors.claims import Claim, Holders, settle

if TYPE_CHECKING:
    from partage.assignors.base import Assignment, Member


def hold_back(members: Sequence[Member], assignment: Assignment) -> dict[str, dict[str, list[int]]]:
    """Take out of an assignment whatever somebody else still owns."""
    return withhold(members, assignment, owners(members))


def owners(members: Sequence[Member]) -> dict[str, dict[int, int]]:
    """Whose each partition is, by what the members' subscriptions say."""
    return settle([Claim(member.generation, member.owned) for member in members])


def withhold(
    members: Sequence[Member],
    assignment: Assignment,
    holders: Holders,
) -> dict[str, dict[str, list[int]]]:
    """As `hold_back`, with the owners known; also what several claim is given to none of them."""
    nobody: Mapping[int, int] = {}
    held: dict[str, dict[str, list[int]]] = {}
    for position, member in enumerate(members):
        mine: dict[str, list[int]] = {}
        for topic, partitions in assignment.get(member.member_id, {}).items():
            of_topic = holders.get(topic, nobody)
            free = [p for p in partitions if of_topic.get(p, position) == position]
            if free:
                mine[topic] = free
        held[member.member_id] = mine
    return held
