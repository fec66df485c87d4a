"""Strategies for groups and their changes, and measures of assignments."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec
from hypothesis import strategies as st

from partage.assignors import Assignment, Member, Topic
from partage.assignors.claims import OwnershipClaim, resolve_ownership

Group: TypeAlias = tuple[list[Member], dict[str, Topic]]
TOPICS = ("a", "b", "c", "d", "e")


def topic(name: str, count: int, racks: Sequence[str] = (), lags: Sequence[int] = ()) -> Topic:
    """Return a topic. ``racks`` has a word for each partition, a letter for each rack ("ab": a and
    b).
    """
    return Topic(
        name=name,
        partition_count=count,
        racks=tuple(frozenset(word) for word in racks),
        lags=tuple(lags),
    )


def named(*topics: Topic) -> dict[str, Topic]:
    return {its.name: its for its in topics}


def members_of(subscriptions: Mapping[str, str], **more: object) -> list[Member]:
    """Return members by subscription: ``{"m1": "a b"}``."""
    return [
        Member(member_id=member_id, topics=tuple(names.split()), **more)
        for member_id, names in subscriptions.items()
    ]


@st.composite
def topics(draw: st.DrawFn, count_max: int = 8) -> dict[str, Topic]:
    names = draw(st.lists(st.sampled_from(TOPICS), unique=True, min_size=1))
    return {name: topic(name, draw(st.integers(0, count_max))) for name in names}


@st.composite
def subscriptions(draw: st.DrawFn) -> tuple[str, ...]:
    return tuple(draw(st.lists(st.sampled_from(TOPICS), unique=True, min_size=1)))


@st.composite
def fresh_groups(draw: st.DrawFn, *, members_max: int = 6, alike: bool | None = None) -> Group:
    """Draw members without partitions, with equal or different subscriptions."""
    its_topics = draw(topics())
    count = draw(st.integers(1, members_max))
    same = draw(st.booleans()) if alike is None else alike
    wanted = (
        [draw(subscriptions())] * count if same else [draw(subscriptions()) for _ in range(count)]
    )
    ids = draw(st.permutations([f"m{number}" for number in range(count)]))
    members = [
        Member(
            member_id=member_id,
            topics=names,
            instance_id=draw(st.sampled_from([None, f"i-{member_id}"])),
        )
        for member_id, names in zip(ids, wanted, strict=True)
    ]
    return members, its_topics


@st.composite
def claiming_groups(draw: st.DrawFn, *, alike: bool | None = None) -> Group:
    """Draw members with arbitrary claims, including conflicting ones and partitions that do not
    exist.
    """
    members, its_topics = draw(fresh_groups(alike=alike))
    claims = st.dictionaries(
        st.sampled_from(TOPICS),
        st.lists(st.integers(0, 9), unique=True, max_size=5).map(tuple),
        max_size=3,
    )
    claiming = [
        msgspec.structs.replace(m, owned=draw(claims), generation=draw(st.integers(-1, 3)))
        for m in members
    ]
    return claiming, its_topics


def owning(members: Sequence[Member], assignment: Assignment, generation: int = 1) -> list[Member]:
    """Return the members with their assignment as owned partitions, if they still subscribe to the
    topic.
    """
    return [
        msgspec.structs.replace(
            member,
            owned={
                name: tuple(partitions)
                for name, partitions in assignment.get(member.member_id, {}).items()
                if name in member.topics
            },
            generation=generation,
        )
        for member in members
    ]


@st.composite
def changes(draw: st.DrawFn, members: Sequence[Member], its_topics: Mapping[str, Topic]) -> Group:
    """Draw a change of a group: members leave, join or change subscriptions; topics grow."""
    left = [member for member in members if draw(st.integers(0, 3)) > 0]
    if draw(st.integers(0, 3)) == 0:
        changed = [msgspec.structs.replace(m, topics=draw(subscriptions())) for m in left]
        left = owning(changed, {member.member_id: member.owned for member in left})
    joined = [
        Member(member_id=f"n{number}", topics=draw(subscriptions()))
        for number in range(draw(st.integers(0 if left else 1, 2)))
    ]
    grown = {
        name: topic(name, its.partition_count + draw(st.sampled_from([0, 0, 0, 1, 3])))
        for name, its in its_topics.items()
    }
    return [*left, *joined], grown


def history(
    chance: random.Random,
    assign: Callable[[Sequence[Member], Mapping[str, Topic]], Assignment],
) -> Group:
    """Return a group after one assignment by ``assign`` and some changes."""

    def wanted() -> tuple[str, ...]:
        return tuple(chance.sample(TOPICS, chance.randint(1, len(TOPICS))))

    its_topics = {name: topic(name, chance.randint(1, 8)) for name in wanted()}
    common = wanted() if chance.random() < 0.3 else None
    members = [
        Member(member_id=f"m{number}", topics=common or wanted())
        for number in range(chance.randint(1, 6))
    ]
    members = owning(members, assign(members, its_topics))
    left = [member for member in members if chance.random() < 0.75]
    if chance.random() < 0.25:
        changed = [msgspec.structs.replace(member, topics=wanted()) for member in left]
        left = owning(changed, {member.member_id: member.owned for member in left})
    joined = [
        Member(member_id=f"n{number}", topics=wanted())
        for number in range(chance.randint(0 if left else 1, 2))
    ]
    grown = {
        name: topic(name, its.partition_count + chance.choice([0, 0, 0, 1, 3]))
        for name, its in its_topics.items()
    }
    return [*left, *joined], grown


def uneven_history(
    chance: random.Random, *, partitions_max: int = 60, members_max: int = 40
) -> Group:
    """Return a group whose partitions are owned unevenly, in classes of equal subscriptions.

    Some partitions have no owner. A few members state an earlier generation, and also claim
    partitions that other members own since.
    """
    its_topics = {
        name: topic(name, chance.randint(1, partitions_max))
        for name in TOPICS[: chance.randint(1, len(TOPICS))]
    }
    names = sorted(its_topics)
    kinds = [
        tuple(chance.sample(names, chance.randint(1, len(names))))
        for _ in range(chance.randint(1, 6))
    ]
    members = [
        Member(member_id=f"m{number:02}", topics=chance.choice(kinds), generation=7)
        for number in range(chance.randint(1, members_max))
    ]
    weights = {member.member_id: chance.random() ** 2 + 0.01 for member in members}
    free_share = chance.choice([0, 0.1, 0.5])
    owned: dict[str, dict[str, list[int]]] = {member.member_id: {} for member in members}
    for name, its in its_topics.items():
        takers = [member.member_id for member in members if name in member.topics]
        for partition in range(its.partition_count if takers else 0):
            if chance.random() >= free_share:
                (owner,) = chance.choices(takers, [weights[taker] for taker in takers])
                owned[owner].setdefault(name, []).append(partition)
    for position in range(len(members) // 8 if chance.random() < 0.5 else 0):
        member = members[position] = msgspec.structs.replace(members[position], generation=6)
        for name in member.topics:
            claimed = owned[member.member_id].setdefault(name, [])
            count = its_topics[name].partition_count
            claimed += set(chance.sample(range(count), count // 4)).difference(claimed)
    return [
        msgspec.structs.replace(
            member, owned={name: tuple(ps) for name, ps in owned[member.member_id].items()}
        )
        for member in members
    ], its_topics


# Measures


def loads(members: Sequence[Member], assignment: Assignment) -> list[int]:
    return [sum(map(len, assignment.get(m.member_id, {}).values())) for m in members]


def unevenness(members: Sequence[Member], assignment: Assignment) -> int:
    """Kafka's balance score: the sum of the differences of all pairs."""
    return sum(abs(a - b) for a, b in itertools.combinations(loads(members, assignment), 2))


def kept(members: Sequence[Member], assignment: Assignment) -> int:
    """Return the number of partitions that stay with their owner."""
    return sum(
        len(set(partitions) & set(assignment.get(member.member_id, {}).get(name, ())))
        for member in members
        for name, partitions in member.owned.items()
    )


def kept_by_owners(members: Sequence[Member], assignment: Assignment) -> int:
    """Return the number of partitions that stay with their owner: the claim of the highest
    generation.
    """
    owners = resolve_ownership([OwnershipClaim(m.generation, m.owned) for m in members])
    return sum(
        owners.get(name, {}).get(partition) == position
        for position, member in enumerate(members)
        for name, partitions in assignment.get(member.member_id, {}).items()
        for partition in partitions
    )


def flat(assignment: Assignment) -> dict[str, dict[str, list[int]]]:
    """Normalise an assignment for comparison, without empty entries."""
    return {
        member_id: {name: sorted(partitions) for name, partitions in mine.items() if partitions}
        for member_id, mine in assignment.items()
    }
