"""The canary assignor: members of a new version get a limited share of the partitions."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from math import floor
from typing import ClassVar, NamedTuple

from partage.assignors.base import Assignor
from partage.assignors.claims import PartitionOwners
from partage.assignors.cooperation import hold_back_owned, resolve_owners
from partage.assignors.group_view import Assignment, Member, Topic
from partage.assignors.sticky import by_member_id
from partage.assignors.sticky_balancer import balance
from partage.model.arguments import check_instance, check_number
from partage.model.rebalance_protocol import RebalanceProtocol

_SHARE = struct.Struct(">d")


class CanaryUserData(NamedTuple):
    """The version and the wanted share of a member, as its user data states them."""

    version: str
    share: float


class Canary(Assignor):
    """Gives members of a new application version a fixed share of the partitions.

    Each member states its application version; a canary also states a ``share``. Members of the
    same version with a share together get that share of each topic, whatever their number, and at
    least one partition in total. The other members divide the rest. Old members need not know the
    new version. If no member states a share, or every member does, all members divide all
    partitions.

    Args:
        running: The application version of this member.
        share: The share of its version, from 0 to 1; 0 if the member is no canary.

    Raises:
        InvalidArgumentError: An argument is invalid.
    """

    name: ClassVar[str] = "canary"
    rebalance_protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (
        RebalanceProtocol.COOPERATIVE,
        RebalanceProtocol.EAGER,
    )

    def __init__(self, running: str = "", *, share: float = 0.0) -> None:
        check_instance("running", running, str)
        check_number("share", share, most=1)
        self.app_version = running
        self.share = share

    def user_data(
        self, topics: Iterable[str], owned: Mapping[str, Sequence[int]], generation: int
    ) -> bytes | None:
        return _SHARE.pack(self.share) + self.app_version.encode()

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        ordered = sorted(members, key=lambda member: member.sort_key)
        holders = resolve_owners(ordered)
        announced = [decode_canary(member) for member in ordered]
        left = {name: list(range(topic.partition_count)) for name, topic in topics.items()}
        shares: list[dict[str, list[int]]] = [{} for _ in ordered]
        others = set(range(len(ordered)))
        if any(not its.share for its in announced):
            for version in sorted({its.version for its in announced if its.share}):
                canaries = {
                    position
                    for position, its in enumerate(announced)
                    if its.version == version and its.share
                }
                share = max(announced[position].share for position in canaries)
                taken = _take_canary_partitions(
                    share, canaries, others - canaries, ordered, topics, left, holders
                )
                _divide(canaries, taken, ordered, holders, shares)
                others -= canaries
        _divide(others, left, ordered, holders, shares)
        return hold_back_owned(ordered, by_member_id(ordered, shares), holders)


def decode_canary(member: Member) -> CanaryUserData:
    """Decode the user data of a member; invalid data means no version and no share."""
    data = member.user_data
    if len(data) < _SHARE.size:
        return CanaryUserData("", 0.0)
    share: float = _SHARE.unpack_from(data)[0]
    version = data[_SHARE.size :].decode(errors="replace")
    return CanaryUserData(version, share if 0 <= share <= 1 else 0.0)


def _take_canary_partitions(
    share: float,
    canaries: set[int],
    others: set[int],
    members: Sequence[Member],
    topics: Mapping[str, Topic],
    left: dict[str, list[int]],
    holders: PartitionOwners,
) -> dict[str, list[int]]:
    """Take partitions for the canaries: first those they own, then the highest numbers."""
    wanted = {name for position in canaries for name in members[position].topics if name in left}
    counts = {name: floor(share * topics[name].partition_count + 0.5) for name in wanted}
    if not any(counts.values()):
        largest = max(sorted(wanted), key=lambda name: len(left[name]), default=None)
        counts.update({} if largest is None else {largest: 1})
    others_want = {name for position in others for name in members[position].topics}
    taken = {}
    for name in sorted(wanted):
        of_topic = holders.get(name, {})
        ranked = sorted(left[name], key=lambda p: (of_topic.get(p) not in canaries, -p))
        count = counts[name] if name in others_want else len(ranked)
        taken[name] = sorted(ranked[:count])
        left[name] = sorted(ranked[count:])
    return taken


def _divide(
    among: set[int],
    partitions: Mapping[str, Sequence[int]],
    members: Sequence[Member],
    holders: PartitionOwners,
    shares: list[dict[str, list[int]]],
) -> None:
    """Divide some partitions of each topic evenly among some members."""
    renumbered = {
        name: {
            number: holder
            for number, partition in enumerate(its)
            if (holder := holders.get(name, {}).get(partition, -1)) in among
        }
        for name, its in partitions.items()
    }
    wants = [member.topics if m in among else () for m, member in enumerate(members)]
    sizes = {name: len(its) for name, its in partitions.items()}
    for position, share in enumerate(balance(wants, renumbered, sizes)):
        for name, numbers in share.items():
            mine = shares[position].setdefault(name, [])
            mine += [partitions[name][number] for number in sorted(numbers)]
