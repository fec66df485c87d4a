"""The sticky and cooperative-sticky assignors: balanced, with as few moves as possible.

They work in one group with Java and librdkafka members, whichever member leads. Names, user data
and the priorities (balance first, then stickiness) are Kafka's. The results need not be identical,
only as balanced and at least as sticky. If subscriptions differ, Kafka looks for single moves that
help. This implementation finds whole chains of moves, so its loads may be more balanced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

import msgspec

from partage.assignors.base import Assignor
from partage.assignors.claims import OwnershipClaim, PartitionOwners, resolve_ownership
from partage.assignors.cooperation import without_held
from partage.assignors.group_view import NO_GENERATION, Assignment, Member, Topic
from partage.assignors.racks import match_racks, may_match_racks
from partage.assignors.return_pass import PartitionsByTopic
from partage.assignors.sticky_balancer import balance_claims, balance_owned
from partage.assignors.user_data import (
    StickyDecoder,
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
        decoder = StickyDecoder()
        claims = [decoder.decode(member.user_data) for member in ordered]
        owned = [claim.owned for claim in claims]
        return _divide(ordered, owned, lambda: claims, topics).by_member_id(ordered)


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
        owned = [member.owned for member in ordered]
        divided = _divide(ordered, owned, lambda: list(map(cooperative_claim, ordered)), topics)
        divided.hold_back()
        return divided.by_member_id(ordered)


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


class _Division(NamedTuple):
    """The partitions of each member, before some are held back."""

    shares: list[PartitionsByTopic]
    #: The members that may have got partitions. The lists of all other members are sorted.
    receivers: Collection[int]
    #: The owners of all partitions that receivers got from other members.
    holders: PartitionOwners

    def hold_back(self) -> None:
        """Remove the partitions that another member still owns (KIP-429)."""
        for position in self.receivers if self.holders else ():
            self.shares[position] = without_held(self.shares[position], position, self.holders)

    def by_member_id(self, members: Sequence[Member]) -> dict[str, PartitionsByTopic]:
        """Return the shares by member id, with sorted partitions."""
        for position in self.receivers:
            for partitions in self.shares[position].values():
                partitions.sort()
        return {member.member_id: share for member, share in zip(members, self.shares, strict=True)}


def _divide(
    members: Sequence[Member],
    owned: Sequence[Mapping[str, Sequence[int]]],
    claims: Callable[[], Sequence[OwnershipClaim]],
    topics: Mapping[str, Topic],
) -> _Division:
    """Divide all topics: balance first, then match racks (KIP-881), then stickiness.

    Args:
        members: The members in the order of precedence.
        owned: The partitions that they claim.
        claims: Return their claims. Only conflicts and racks need them.
        topics: The existing topics by name.
    """
    subscriptions = [member.topics for member in members]
    sizes = {name: topic.partition_count for name, topic in topics.items()}
    is_matching_racks = may_match_racks(members, topics)
    balanced = balance_claims(subscriptions, owned, sizes)
    if balanced is not None and not is_matching_racks:
        return _Division(*balanced)
    holders = resolve_ownership(claims())
    if balanced is None:
        balanced = balance_owned(subscriptions, holders, sizes)
    if not is_matching_racks:
        return _Division(balanced.shares, balanced.receivers, holders)
    match_racks(balanced.shares, holders, members, topics)
    return _Division(balanced.shares, range(len(members)), holders)


def by_member_id(
    members: Sequence[Member], shares: Sequence[PartitionsByTopic]
) -> dict[str, PartitionsByTopic]:
    """Return the shares by member id, with sorted partitions."""
    for share in shares:
        for partitions in share.values():
            partitions.sort()
    return {member.member_id: share for member, share in zip(members, shares, strict=True)}
