"""Who owns which partition, when two members may both say that they do.

A member that was cut off for a while comes back with partitions that others have got since. The
claim of the highest generation holds (KIP-792); of several with the same, none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

#: Stands for a member where several claim a partition and none is right.
DISPUTED: Final = -1

#: By topic, by partition: the position of its owner among the members, or `DISPUTED`.
Holders: TypeAlias = Mapping[str, Mapping[int, int]]


class Claim(NamedTuple):
    """What one member says it owns."""

    generation: int
    owned: Mapping[str, Sequence[int]]


def settle(claims: Sequence[Claim]) -> dict[str, dict[int, int]]:
    """Decide for each claimed partition whose it is."""
    holders: dict[str, dict[int, int]] = {}
    disputed: dict[tuple[str, int], int] = {}  # the generation of those who dispute it
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
