"""Sticky and cooperative-sticky: even, and whatever can stays where it is.

In one group with Java and librdkafka members, whoever leads: names, user data and the order of
precedence (level first, then sticky) are Kafka's. Results need not be the same to the partition,
only as level and at least as sticky. Where subscriptions differ Kafka looks for single moves that
help and stops when there is none; here whole chains of moves are found, so loads may be more level.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import msgspec

from partage.assignors.balancing import balance
from partage.assignors.base import (
    NO_GENERATION,
    Assignment,
    Assignor,
    Member,
    RebalanceProtocol,
    Topic,
)
from partage.assignors.claims import Claim, Holders, settle
from partage.assignors.cooperation import withhold
from partage.assignors.racks import match_racks
from partage.assignors.returning import Share
from partage.assignors.user_data import (
    decode_generation,
    decode_sticky,
    encode_generation,
    encode_sticky,
)


class Sticky(Assignor):
    """Kafka's ``sticky``: eager, so each member remembers what it had and tells the leader."""

    name: ClassVar[str] = "sticky"

    def __init__(self) -> None:
        self._had: dict[str, list[int]] | None = None
        self._generation = NO_GENERATION

    def on_assignment(self, assignment: Mapping[str, Sequence[int]], generation: int) -> None:
        self._had = {topic: list(partitions) for topic, partitions in assignment.items()}
        self._generation = generation

    def user_data(
        self, topics: Iterable[str], owned: Mapping[str, Sequence[int]], generation: int
    ) -> bytes | None:
        return None if self._had is None else encode_sticky(self._had, self._generation)

    def understand(self, members: Sequence[Member]) -> Sequence[Member]:
        return [_claiming(member, claim_of(member)) for member in members]

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        ordered = sorted(members, key=lambda member: member.order)
        holders = settle([claim_of(member) for member in ordered])
        return by_id(ordered, place(ordered, holders, topics))


class CooperativeSticky(Assignor):
    """Kafka's ``cooperative-sticky``: members keep what they have while they join (KIP-429)."""

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

    def understand(self, members: Sequence[Member]) -> Sequence[Member]:
        return [_claiming(member, cooperative_claim(member)) for member in members]

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        ordered = sorted(members, key=lambda member: member.order)
        holders = settle([cooperative_claim(member) for member in ordered])
        shares = place(ordered, holders, topics)
        return withhold(ordered, by_id(ordered, shares), holders)


def claim_of(member: Member) -> Claim:
    """What a member of ``sticky`` had."""
    return decode_sticky(member.user_data)


def cooperative_claim(member: Member) -> Claim:
    """What a member owns; before version 2 of the subscription the generation is in user data."""
    if member.generation != NO_GENERATION:
        return Claim(member.generation, member.owned)
    return Claim(decode_generation(member.user_data), member.owned)


def _claiming(member: Member, claim: Claim) -> Member:
    return msgspec.structs.replace(member, owned=claim.owned, generation=claim.generation)


def place(members: Sequence[Member], holders: Holders, topics: Mapping[str, Topic]) -> list[Share]:
    """Share out all topics: level first, then in the right racks (KIP-881), then sticky."""
    sizes = {name: topic.partition_count for name, topic in topics.items()}
    shares = balance([member.topics for member in members], holders, sizes)
    match_racks(shares, holders, members, topics)
    return shares


def by_id(members: Sequence[Member], shares: Sequence[Share]) -> dict[str, Share]:
    """Shares under the names of their members, partitions in order."""
    for share in shares:
        for partitions in share.values():
            partitions.sort()
    return {member.member_id: share for member, share in zip(members, shares, strict=True)}
