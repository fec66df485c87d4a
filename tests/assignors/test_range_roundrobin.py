"""Range and round-robin: the results equal Kafka's, partition by partition."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

from assignors import group_strategies, reference_assignors
from partage.assignors import Member, Range, RoundRobin, check_assignment

BOTH = {"range": Range, "roundrobin": RoundRobin}


@pytest.mark.parametrize("name", BOTH)
@settings(max_examples=50)
@given(group=group_strategies.fresh_groups())
def test_results_equal_other_clients(name, group):
    members, topics = group
    ours = group_strategies.flat(BOTH[name]().assign(members, topics))
    check_assignment(members, topics, ours)
    # kafka-python's round-robin fails if subscriptions differ.
    if name == "range" or len({member.topics for member in members}) == 1:
        assert ours == group_strategies.flat(
            reference_assignors.kafka_python(name, members, topics)
        )
    if all(member.instance_id is None for member in members):  # aiokafka has no other order
        assert ours == group_strategies.flat(reference_assignors.aiokafka(name, members, topics))


def racked(**racks):
    """Return members of topics a and b, by rack."""
    return [
        Member(member_id=member_id, topics=("a", "b"), rack=rack)
        for member_id, rack in racks.items()
    ]


def assigned(members, *topics):
    """Return the assignment without empty entries, in Java's notation: ``{"m1": "a0 a1"}``."""
    given_out = Range().assign(members, group_strategies.named(*topics))
    check_assignment(members, group_strategies.named(*topics), given_out)
    return {
        member_id: " ".join(f"{name}{p}" for name, ps in mine.items() for p in ps)
        for member_id, mine in given_out.items()
    }


# Results derived by hand from Kafka's RangeAssignor


def test_range_prefers_racks_to_member_order():
    members = racked(m1="x", m2="y", m3="z")
    topic = group_strategies.topic("a", 3, ["y", "z", "x"])
    assert assigned(members, topic) == {"m1": "a2", "m2": "a0", "m3": "a1"}


def test_range_prefers_even_shares_to_racks():
    members = racked(m1="x", m2="y")
    topic = group_strategies.topic("a", 4, ["x", "x", "x", "y"])
    assert assigned(members, topic) == {"m1": "a0 a1", "m2": "a2 a3"}


def test_range_prefers_co_partitioning_to_racks():
    members = racked(m1="x", m2="y")
    a, b = group_strategies.topic("a", 2, ["x", "y"]), group_strategies.topic("b", 2, ["y", "x"])
    assert assigned(members, a, b) == {"m1": "a0 b0", "m2": "a1 b1"}
    b = group_strategies.topic("b", 2, ["yx", "y"])
    a = group_strategies.topic("a", 2, ["y", "x"])
    assert assigned(members, a, b) == {"m1": "a1 b1", "m2": "a0 b0"}


def test_range_matches_racks_of_unlike_topics_separately():
    members = racked(m1="x", m2="y")
    a, b = (
        group_strategies.topic("a", 2, ["y", "x"]),
        group_strategies.topic("b", 3, ["x", "y", "x"]),
    )
    assert assigned(members, a, b) == {"m1": "a1 b0 b2", "m2": "a0 b1"}


def test_range_member_without_rack_takes_any_partition():
    members = racked(m1=None, m2="y")
    topic = group_strategies.topic("a", 2, ["x", "y"])
    assert assigned(members, topic) == {"m1": "a0", "m2": "a1"}


@pytest.mark.parametrize("racks", [("xy", "xy", "xy"), ("z", "z", "zz"), ()])
def test_range_ignores_irrelevant_racks(racks):
    """All partitions are in all racks, or members are in none of them, or racks are unknown."""
    members = racked(m1="y", m2="x")
    assert assigned(members, group_strategies.topic("a", 3, racks)) == {"m1": "a0 a1", "m2": "a2"}


@pytest.mark.parametrize("assignor", BOTH.values())
def test_static_members_come_first_and_keep_positions(assignor):
    topics = group_strategies.named(group_strategies.topic("a", 3))
    plain, *static = group_strategies.members_of({"a1": "a", "z": "a", "y": "a"})
    static = [
        msgspec.structs.replace(member, instance_id=name)
        for member, name in zip(static, ("i1", "i2"), strict=True)
    ]
    given_out = assignor().assign([plain, *static], topics)
    assert given_out == {"z": {"a": [0]}, "y": {"a": [1]}, "a1": {"a": [2]}}
