"""The weighted assignor: members get partitions in proportion to their weights."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from partage.assignors.base import Assignor
from partage.assignors.cooperation import hold_back_owned, resolve_owners
from partage.assignors.group_view import Assignment, Member, Topic
from partage.assignors.sticky import by_member_id
from partage.assignors.sticky_balancer import balance
from partage.model.arguments import check_number, invalid_argument
from partage.model.rebalance_protocol import RebalanceProtocol

_WEIGHT = struct.Struct(">d")


class Weighted(Assignor):
    """Assigns partitions in proportion to ``weight``, for example the number of CPUs of each
    member.

    It is as sticky as possible. With equal weights it is `CooperativeSticky` under another name.
    """

    name: ClassVar[str] = "weighted"
    rebalance_protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (
        RebalanceProtocol.COOPERATIVE,
        RebalanceProtocol.EAGER,
    )

    def __init__(self, weight: float = 1.0) -> None:
        if not _is_weight(check_number("weight", weight, least=float("-inf"))):
            raise invalid_argument("weight", weight, "a positive number")
        self.weight = float(weight)

    def user_data(
        self, topics: Iterable[str], owned: Mapping[str, Sequence[int]], generation: int
    ) -> bytes | None:
        return _WEIGHT.pack(self.weight)

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        ordered = sorted(members, key=lambda member: member.sort_key)
        holders = resolve_owners(ordered)
        sizes = {name: topic.partition_count for name, topic in topics.items()}
        weights = [weight_of(member) for member in ordered]
        shares = balance([member.topics for member in ordered], holders, sizes, weights)
        return hold_back_owned(ordered, by_member_id(ordered, shares), holders)


def weight_of(member: Member) -> float:
    """Decode the weight of a member; invalid user data means 1."""
    if len(member.user_data) != _WEIGHT.size:
        return 1.0
    weight: float = _WEIGHT.unpack(member.user_data)[0]
    return weight if _is_weight(weight) else 1.0


def _is_weight(weight: float) -> bool:
    return math.isfinite(weight) and weight > 0
