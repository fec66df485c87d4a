"""The smallest embedded protocol that moves partitions as a consumer group does.

Metadata and assignments are JSON. The assignor is cooperative-sticky, or one that is as small as
can be, sticky and balanced; a partition that somebody else still claims is held back, so that
nothing moves from owner to owner in one step. A claim counts by the generation it comes from
(KIP-792).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from partage.assignors import CooperativeSticky, Member, Topic
from partage.member.events import GroupMember, Partition


class Metadata(msgspec.Struct, frozen=True):
    topics: tuple[str, ...]
    owned: tuple[Partition, ...]
    generation: int


def metadata(topics: frozenset[str], owned: Sequence[Partition], generation: int) -> bytes:
    return msgspec.json.encode(Metadata(tuple(sorted(topics)), tuple(owned), generation))


def encode(partitions: Sequence[Partition]) -> bytes:
    return msgspec.json.encode(sorted(partitions))


def decode(assignment: bytes) -> tuple[Partition, ...]:
    """An empty one is of a member that the leader left out, or did not know."""
    return msgspec.json.decode(assignment, type=tuple[Partition, ...]) if assignment else ()


def assign(
    members: Sequence[GroupMember], partition_counts: Mapping[str, int]
) -> dict[str, tuple[Partition, ...]]:
    """Each partition to one subscriber, or to nobody while another still claims it."""
    said = {m.member_id: msgspec.json.decode(m.metadata, type=Metadata) for m in members}
    claims: dict[Partition, dict[str, int]] = defaultdict(dict)
    for member_id, own in said.items():
        for partition in own.owned:
            claims[partition][member_id] = own.generation
    given: dict[str, list[Partition]] = {member_id: [] for member_id in sorted(said)}
    for topic in sorted(partition_counts):
        subscribers = [m for m in given if topic in said[m].topics]
        if not subscribers:
            continue
        quota = -(-partition_counts[topic] // len(subscribers))
        shares: dict[str, int] = dict.fromkeys(subscribers, 0)
        for number in range(partition_counts[topic]):
            claimed = claims[topic, number]
            heirs = [m for m in shares if m in claimed and shares[m] < quota]
            heir = max(heirs, key=lambda m: claimed[m], default=None)
            if heir is None:
                heir = min(shares, key=lambda m: shares[m])
            shares[heir] += 1
            holder = max(claimed, key=lambda m: claimed[m], default=heir)
            if holder == heir:
                given[heir].append((topic, number))
    return {member_id: tuple(partitions) for member_id, partitions in given.items()}


def by_cooperative_sticky(
    members: Sequence[GroupMember], partition_counts: Mapping[str, int]
) -> dict[str, tuple[Partition, ...]]:
    """The same by the assignor that consumers use."""
    topics = {
        name: Topic(name=name, partition_count=count) for name, count in partition_counts.items()
    }
    shares = CooperativeSticky().assign([_member(member) for member in members], topics)
    return {
        member_id: tuple((topic, n) for topic, numbers in given.items() for n in numbers)
        for member_id, given in shares.items()
    }


def _member(member: GroupMember) -> Member:
    said = msgspec.json.decode(member.metadata, type=Metadata)
    owned: dict[str, list[int]] = defaultdict(list)
    for topic, number in said.owned:
        owned[topic].append(number)
    return Member(
        member_id=member.member_id,
        topics=said.topics,
        instance_id=member.instance_id,
        owned=owned,
        generation=said.generation,
    )
