"""The sticky and cooperative-sticky assignors: balanced, with as few moves as possible.

They work in one group with Java and librdkafka members, whichever member leads. Names, user data
and the priorities (balance first, then stickiness) are Kafka's. The results need not be identical,
only as balanced and at least as sticky. If subscriptions differ, Kafka looks for single moves that
help. This implementation finds whole chains of moves, so its loads may be more balanced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import msgspec

from partage.assignors.base import Assignor
from partage.assignors.claims import OwnershipClaim, PartitionOwners, resolve_ownership
from partage.assignors.cooperation import hold_back_owned
from partage.assignors.group_view import NO_GENERATION, Assignment, Member, Topic
from partage.assignors.racks import match_racks
from partage.assignors.return_pass import PartitionsByTopic
from partage.assignors.sticky_balancer import balance
from partage.assignors.user_data import (
    decode_generation,
    decode_sticky,
    encode_generation,
    encode_sticky,
)
from partage.model.rebalance_protocol import RebalanceProtocol


class Sticky(Assignor):
    """Kafka's ``sticky`` assignor. It is eager, so each member sends its last assignment to the
    leader.
    """

    name: ClassVar[str] = "sticky"

    def __init__(self) -> None:
        self._last_owned: dict[str, list[int]] | None = None
        self._generation = NO_GENERATION

    def on_assignment(self, assignment: Mapping[str, Sequence[int]], generation: int) -> None:
        self._last_owned = {topic: list(partitions) for topic, partitions in assignment.items()}
        self._generation = generation

    def user_data(
        self, topics: Iterable[str], owned: Mapping[str, Sequence[int]], generation: int
    ) -> bytes | None:
        return (
            None if self._last_owned is None else encode_sticky(self._last_owned, self._generation)
        )

    def with_user_data(self, members: Sequence[Member]) -> Sequence[Member]:
        return [_with_claim(member, sticky_claim(member)) for member in members]

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        ordered = sorted(members, key=lambda member: member.sort_key)
        holders = resolve_ownership([sticky_claim(member) for member in ordered])
        return by_member_id(ordered, balance_and_match_racks(ordered, holders, topics))


class CooperativeSticky(Assignor):
    """Kafka's ``cooperative-sticky`` assignor: members keep their partitions while they join
    (KIP-429).
    """

    name: ClassVar[str] = "cooperative-sticky"
    rebalance_protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (
        RebalanceProtocol.COOPERATIVE,
        RebalanceProtocol.EAGER,
    )

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def on_assignment(self, assignment: Mapping[str, Sequence[int]], generation: int) -> None:
        self._generation = generation

    def user_data(
        self, topics: Iterable[str], owned: Mapping[str, Sequence[int]], generation: int
    ) -> bytes | None:
        return encode_generation(self._generation)

    def with_user_data(self, members: Sequence[Member]) -> Sequence[Member]:
        return [_with_claim(member, cooperative_claim(member)) for member in members]

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        ordered = sorted(members, key=lambda member: member.sort_key)
        holders = resolve_ownership([cooperative_claim(member) for member in ordered])
        shares = balance_and_match_racks(ordered, holders, topics)
        return hold_back_owned(ordered, by_member_id(ordered, shares), holders)


def sticky_claim(member: Member) -> OwnershipClaim:
    """Return the last assignment of a ``sticky`` member."""
    return decode_sticky(member.user_data)


def cooperative_claim(member: Member) -> OwnershipClaim:
    """Return the owned partitions. Before subscription version 2 the generation is in the user
    data.
    """
    if member.generation != NO_GENERATION:
        return OwnershipClaim(member.generation, member.owned)
    return OwnershipClaim(decode_generation(member.user_data), member.owned)


def _with_claim(member: Member, claim: OwnershipClaim) -> Member:
    return msgspec.structs.replace(member, owned=claim.owned, generation=claim.generation)


def balance_and_match_racks(
    members: Sequence[Member], holders: PartitionOwners, topics: Mapping[str, Topic]
) -> list[PartitionsByTopic]:
    """Divide all topics: balance first, then match racks (KIP-881), then stickiness."""
    sizes = {name: topic.partition_count for name, topic in topics.items()}
    shares = balance([member.topics for member in members], holders, sizes)
    match_racks(shares, holders, members, topics)
    return shares


def by_member_id(
    members: Sequence[Member], shares: Sequence[PartitionsByTopic]
) -> dict[str, PartitionsByTopic]:
    """Return the shares by member id, with sorted partitions."""
    for share in shares:
        for partitions in share.values():
            partitions.sort()
    return {member.member_id: share for member, share in zip(members, shares, strict=True)}
