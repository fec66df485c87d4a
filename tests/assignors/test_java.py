"""Comparison with Apache Kafka's assignors on the same groups."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from assignors import group_strategies
from assignors.java_program import JavaProgram
from partage.assignors import (
    Assignment,
    CooperativeSticky,
    Member,
    Range,
    RoundRobin,
    Sticky,
    Topic,
    check_assignment,
)
from partage.assignors.user_data import decode_generation, decode_sticky, encode_sticky

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("java-assignors")]

SOURCE = Path(__file__).parent / "java" / "Assign.java"
#: The last table of "Assignors" in docs/benchmarks.md has the results for 4,000 groups.
UNEVEN_GROUPS = 250


class Java(JavaProgram):
    """A running JVM that computes assignments on request."""

    def assign(
        self, name: str, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> Assignment:
        for its in topics.values():
            known = [",".join(sorted(racks)) or "-" for racks in its.racks]
            racks = [*known, *["-"] * (its.partition_count - len(known))]
            self.send("topic", its.name, ";".join(racks[: its.partition_count]))
        for m in members:
            rack = m.rack or "-"
            topics_of = ",".join(m.topics)
            self.send(
                *("member", m.member_id, m.instance_id or "-", rack, str(m.generation)),
                *(topics_of, _words(m.owned), m.user_data.hex()),
            )
        self.send("assign", name)
        given: dict[str, dict[str, list[int]]] = {}
        while (line := self.receive()) != "end":
            member_id, words = line.split("\t")
            mine = given.setdefault(member_id, {})
            for word in words.split(",")[:-1]:
                topic, partition = word.rsplit(":", 1)
                mine.setdefault(topic, []).append(int(partition))
        return given

    def user_data(self, name: str, owned: Mapping[str, Sequence[int]], generation: int) -> bytes:
        """Return the user data of a member that owned ``owned``."""
        self.send("tell", name, str(generation), _words(owned))
        return bytes.fromhex(self.receive())


def _words(owned: Mapping[str, Sequence[int]]) -> str:
    return ",".join(f"{name}:{p}" for name, partitions in owned.items() for p in partitions)


@pytest.fixture(scope="module")
def java(tmp_path_factory) -> Iterator[Java]:
    running = Java(SOURCE, tmp_path_factory.mktemp("classes"))
    yield running
    running.close()


def racked(chance: random.Random, members, topics):
    """Return the same group with racks."""
    words = ["x", "y", "z", "xy", "yz", "", "w"]
    placed = {
        name: group_strategies.topic(
            name,
            its.partition_count,
            [chance.choice(words) for _ in range(its.partition_count)],
        )
        for name, its in topics.items()
    }
    racks = [None, "x", "y", "z"]
    return [msgspec.structs.replace(m, rack=chance.choice(racks)) for m in members], placed


def histories(count: int, *, in_racks: bool = False) -> Iterator[group_strategies.Group]:
    for seed in range(count):
        chance = random.Random(seed)
        members, topics = group_strategies.history(chance, CooperativeSticky().assign)
        if chance.random() < 0.3:
            members[0] = msgspec.structs.replace(members[0], instance_id="static")
        yield racked(chance, members, topics) if in_racks else (members, topics)


@pytest.mark.parametrize("in_racks", [False, True], ids=["", "in-racks"])
def test_range_equals_java(java, in_racks):
    for members, topics in histories(300, in_racks=in_racks):
        ours = Range().assign(members, topics)
        assert group_strategies.flat(ours) == group_strategies.flat(
            java.assign("range", members, topics)
        )


def test_round_robin_equals_java(java):
    for members, topics in histories(200):
        ours = RoundRobin().assign(members, topics)
        assert group_strategies.flat(ours) == group_strategies.flat(
            java.assign("roundrobin", members, topics)
        )


def as_sticky(members):
    """Return members with their owned partitions in ``sticky`` user data only."""
    return [
        msgspec.structs.replace(
            m, user_data=encode_sticky(m.owned, m.generation), owned={}, generation=-1
        )
        for m in members
    ]


def test_sticky_is_as_balanced_and_sticky_as_java(java):
    """Java reads our user data. `test_sticky` explains the comparison of stickiness."""
    less, ours_in_all, theirs_in_all = 0, 0, 0
    for members, topics in histories(500):
        told = as_sticky(members)
        ours, theirs = Sticky().assign(told, topics), java.assign("sticky", told, topics)
        our_score, their_score = (
            group_strategies.unevenness(members, its) for its in (ours, theirs)
        )
        assert our_score <= their_score
        if our_score == their_score:
            our_kept, their_kept = (
                group_strategies.kept(members, ours),
                group_strategies.kept(members, theirs),
            )
            less += our_kept < their_kept
            ours_in_all += our_kept
            theirs_in_all += their_kept
    assert ours_in_all >= theirs_in_all
    assert less <= 2


def final_assignment(assign, members, topics, *, is_cooperative):
    """Return the assignment that no more generation changes."""
    if not is_cooperative:
        return assign(as_sticky(members), topics)
    last = assign(members, topics)
    for generation in range(8, 16):
        members = group_strategies.owning(members, last, generation)
        following = assign(members, topics)
        if group_strategies.flat(following) == group_strategies.flat(last):
            return following
        last = following
    raise AssertionError("the group does not become stable")


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_uneven_group_is_as_even_as_java_with_fewer_moves(java, name):
    """The members own large topics unevenly, some with the claims of an earlier generation."""
    assignor = {"sticky": Sticky, "cooperative-sticky": CooperativeSticky}[name]()
    our_moves, java_moves = 0, 0
    for seed in range(UNEVEN_GROUPS):
        members, topics = group_strategies.uneven_history(random.Random(seed))
        ours, theirs = (
            final_assignment(assign, members, topics, is_cooperative=name != "sticky")
            for assign in (assignor.assign, lambda *group: java.assign(name, *group))
        )
        our_score, java_score = (
            group_strategies.unevenness(members, its) for its in (ours, theirs)
        )
        assert our_score <= java_score, seed
        if our_score == java_score:
            placed = sum(group_strategies.loads(members, ours))
            our_moves += placed - group_strategies.kept_by_owners(members, ours)
            java_moves += placed - group_strategies.kept_by_owners(members, theirs)
    assert our_moves <= java_moves


def in_rack(members, topics, assignment):
    """Return the number of partitions that are read from a replica in the member's rack."""
    return sum(
        member.rack in topics[name].racks[partition]
        for member in members
        for name, partitions in assignment[member.member_id].items()
        for partition in partitions
    )


def test_sticky_matches_as_many_racks_as_java(java):
    ours_in_all, theirs_in_all = 0, 0
    for members, topics in histories(300, in_racks=True):
        told = as_sticky(members)
        ours, theirs = Sticky().assign(told, topics), java.assign("sticky", told, topics)
        assert group_strategies.unevenness(members, ours) <= group_strategies.unevenness(
            members, theirs
        )
        ours_in_all += in_rack(members, topics, ours)
        theirs_in_all += in_rack(members, topics, theirs)
    assert ours_in_all >= theirs_in_all


@pytest.mark.parametrize("first", ["ours", "java"])
def test_cooperative_group_with_alternating_leaders(java, first):
    def ours(members, topics):
        return CooperativeSticky().assign(members, topics)

    def theirs(members, topics):
        return java.assign("cooperative-sticky", members, topics)

    turns = [ours, theirs] if first == "ours" else [theirs, ours]
    for members, topics in histories(150):
        for generation, lead in enumerate(turns * 3, start=2):
            given_out = lead(members, topics)
            check_assignment(members, topics, given_out, cooperative=True)
            members = group_strategies.owning(members, given_out, generation)
        check_assignment(members, topics, given_out)


def test_user_data_equals_java(java):
    for owned in {}, {"a": [0]}, {"a": [0, 5], "bb": [3]}:
        theirs = java.user_data("sticky", owned, 9)
        assert decode_sticky(theirs) == (9, owned)
        assert len(theirs) == len(encode_sticky(owned, 9))
        if len(owned) < 2:  # Java orders topics by its hash table
            assert theirs == encode_sticky(owned, 9)
    theirs = java.user_data("cooperative-sticky", {}, 9)
    assert decode_generation(theirs) == 9
    ours = CooperativeSticky()
    ours.on_assignment({}, 9)
    assert ours.user_data([], {}, 9) == theirs
