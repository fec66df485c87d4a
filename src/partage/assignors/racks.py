"""Members and partitions in racks (KIP-881)."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def are_worth_matching(
    member_racks: Collection[str], partition_racks: Sequence[frozenset[str]]
) -> bool:
    """Whether it makes a difference who gets what: not where every partition is in all racks."""
    everywhere = frozenset[str]().union(*partition_racks)
    if everywhere.isdisjoint(member_racks):
        return False
    return any(racks != everywhere for racks in partition_racks)
