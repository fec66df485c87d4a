"""The owners of partitions that several members claim.

A member that was disconnected for a while may claim partitions that other members got since. The
claim of the highest generation wins (KIP-792). If several claims have the same generation, none
wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

#: The owner of a partition that several members claim, where no claim wins.
DISPUTED: Final = -1

#: The position of the owner among the members, or `DISPUTED`, by topic and partition.
PartitionOwners: TypeAlias = Mapping[str, Mapping[int, int]]


class OwnershipClaim(NamedTuple):
    """The partitions that a member claims to own, and the generation of the claim."""

    generation: int
    owned: Mapping[str, Sequence[int]]


def resolve_ownership(claims: Sequence[OwnershipClaim]) -> dict[str, dict[int, int]]:
    """Decide the owner of each claimed partition."""
    holders: dict[str, dict[int, int]] = {}
    # The generation of the disputed claims. The keys are plain tuples, see `TopicPartition`.
    disputed: dict[tuple[str, int], int] = {}
    for position, (generation, owned) in enumerate(claims):
        for topic, partitions in owned.items():
            of_topic = holders.get(topic)
            if of_topic is None:
                of_topic = holders[topic] = {}
            for partition in partitions:
                if partition not in of_topic:
                    of_topic[partition] = position
                    continue
                other = of_topic[partition]
                if other == position:
                    continue
                its = disputed[topic, partition] if other == DISPUTED else claims[other].generation
                if generation > its:
                    of_topic[partition] = position
                elif generation == its:
                    of_topic[partition] = DISPUTED
                    disputed[topic, partition] = its
    return holders
