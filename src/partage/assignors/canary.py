"""Canary: a share of the partitions, and no more, to the members of a new version."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from math import floor
from typing import ClassVar, NamedTuple

from partage.assignors.balancing import balance
from partage.assignors.base import Assignment, Assignor, Member, RebalanceProtocol, Topic
from partage.assignors.claims import Holders
from partage.assignors.cooperation import owners, withhold
from partage.assignors.sticky import by_id

_SHARE = struct.Struct(">d")


class Announced(NamedTuple):
    """What a member says of itself."""

    version: str
    share: float


class Canary(Assignor):
    """Members of the application's ``running`` version; a canary also says what ``share`` it wants.

    All members with the same version and a share get that much of each topic between them, however
    many they are, and at least one partition in all; the others divide the rest. Old members need
    not know of the new version. Once nobody wants a share any more, or nobody is left who does
    not, all divide everything.
    """

    name: ClassVar[str] = "canary"
    rebalance_protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (
        RebalanceProtocol.COOPERATIVE,
        RebalanceProtocol.EAGER,
    )

    def __init__(self, running: str = "", *, share: float = 0.0) -> None:
        if not 0 <= share <= 1:
            raise ValueError(f"share must be between 0 and 1, not {share}")
        self.running = running
        self.share = share

    def user_data(
        self, topics: Iterable[str], owned: Mapping[str, Sequence[int]], generation: int
    ) -> bytes | None:
        return _SHARE.pack(self.share) + self.running.encode()

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        ordered = sorted(members, key=lambda member: member.order)
        holders = owners(ordered)
        announced = [announced_by(member) for member in ordered]
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
                taken = _take(share, canaries, others - canaries, ordered, topics, left, holders)
                _divide(canaries, taken, ordered, holders, shares)
                others -= canaries
        _divide(others, left, ordered, holders, shares)
        return withhold(ordered, by_id(ordered, shares), holders)


def announced_by(member: Member) -> Announced:
    """A member that says nothing sensible is of no version and wants no share."""
    data = member.user_data
    if len(data) < _SHARE.size:
        return Announced("", 0.0)
    share: float = _SHARE.unpack_from(data)[0]
    version = data[_SHARE.size :].decode(errors="replace")
    return Announced(version, share if 0 <= share <= 1 else 0.0)


def _take(
    share: float,
    canaries: set[int],
    others: set[int],
    members: Sequence[Member],
    topics: Mapping[str, Topic],
    left: dict[str, list[int]],
    holders: Holders,
) -> dict[str, list[int]]:
    """Take from what is left the partitions of canaries: what they own first, then the last."""
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
    holders: Holders,
    shares: list[dict[str, list[int]]],
) -> None:
    """Share out some partitions of each topic evenly among some members."""
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
