"""Assignors of group members, run in the broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import msgspec
import pytest

from partage.assignors import (
    Assignment,
    Assignor,
    ConsistentHashing,
    CooperativeSticky,
    CoPartitioned,
    InvalidAssignmentError,
    LagBased,
    Member,
    RackAware,
    Range,
    RebalanceProtocol,
    Redundant,
    RoundRobin,
    Sticky,
    Topic,
)
from partage.assignors.server_side import AssignorAdapter, Uniform, check_target

from .groups import (
    assign,
    kept,
    loads,
    members,
    random_group,
    subscribed,
    topics,
    unevenness,
    with_target,
)

ASSIGNORS = [ConsistentHashing, CooperativeSticky, RackAware, Range, RoundRobin, Sticky]


class Fixed(Assignor):
    """Returns a fixed assignment, and keeps what it was called with."""

    name = "fixed"

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.calls: list[Sequence[Member]] = []

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        self.calls.append(members)
        return self.assignment

    def user_data(self, topics, owned, generation):
        return f"{topics} {owned} {generation}".encode()


class Withholding(Fixed):
    rebalance_protocols = (RebalanceProtocol.COOPERATIVE,)


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda each: each.name)
def test_adapter_target_is_complete(assignor):
    for seed in range(25):
        adapter = AssignorAdapter(assignor())
        group, existing = random_group(Random(seed), adapter)
        check_target(group, subscribed(group, existing), assign(adapter, group, existing))


@pytest.mark.parametrize("assignor", [CooperativeSticky, Sticky], ids=lambda each: each.name)
def test_sticky_assignors_are_as_sticky_as_uniform(assignor):
    """They know the previous target, although a classic member would state it."""
    for seed in range(50):
        group, existing = random_group(Random(seed), Uniform())
        target = assign(AssignorAdapter(assignor()), group, existing)
        uniform = assign(Uniform(), group, existing)
        assert unevenness(target) == unevenness(uniform)
        assert kept(group, target) >= kept(group, uniform) - 1


def test_adapter_member_is_as_leader_sees_it():
    existing = topics(t=2, u=1)
    t, u = existing
    group = with_target(members("AB", existing), {"A": {t: (0, 1), b"deleted": (0,)}})
    fixed = Fixed({"A": {"t": [1, 0]}, "B": {"u": [0]}})
    target = assign(AssignorAdapter(fixed), group, existing)
    assert target == {"A": {t: (0, 1)}, "B": {u: (0,)}}
    ((first, second),) = fixed.calls
    assert first.owned == {"t": (0, 1)}
    assert (first.generation, second.generation) == (0, -1)
    assert first.user_data == b"('t', 'u') {'t': (0, 1)} 0"
    assert second.user_data == b"('t', 'u') {} -1"


@pytest.mark.parametrize(
    ("assignment", "problem"),
    [
        ({"A": {"t": [0]}}, "t-1 is assigned to 0 members"),
        ({"A": {"t": [0, 1]}, "B": {"t": [1]}}, "t-1 is assigned to 2 members"),
        ({"C": {"t": [0, 1]}}, "'C' is not a member"),
        ({"A": {"t": [0, 1, 2]}}, "t has 2 partitions"),
        ({"A": {"x": [0]}}, "not subscribed"),
    ],
)
def test_adapter_invalid_assignment_raises(assignment, problem):
    existing = topics(t=2)
    for assignor in (Fixed(assignment), Withholding(assignment)):
        with pytest.raises(InvalidAssignmentError, match=problem):
            assign(AssignorAdapter(assignor), members("AB", existing), existing)


def test_adapter_cooperative_assignor_that_never_ends_raises():
    existing = topics(t=2)
    (t,) = existing
    group = with_target(members("AB", existing), {"A": {t: (0, 1)}})

    class Never(Withholding):
        def assign(self, members, topics):
            super().assign(members, topics)
            return {member.member_id: dict(member.owned) for member in members[1:]}

    never = Never({})
    with pytest.raises(InvalidAssignmentError, match="t-0 is assigned to 0 members"):
        assign(AssignorAdapter(never), group, existing)
    assert len(never.calls) == 2


@pytest.mark.parametrize(
    ("assignor", "problem"), [(LagBased(), "needs lags"), (Redundant(2), "to 2 members")]
)
def test_adapter_unsuitable_assignor_is_refused(assignor, problem):
    with pytest.raises(ValueError, match=problem):
        AssignorAdapter(assignor)


def test_adapter_copartitioned_assignor_keeps_topics_together():
    existing = topics(t=4, u=4)
    target = assign(AssignorAdapter(CoPartitioned()), members("AB", existing), existing)
    assert loads(target) == [4, 4]
    assert all(len(set(share.values())) == 1 for share in target.values())


@pytest.mark.parametrize("assignor", [CooperativeSticky, RackAware, Sticky])
def test_adapter_assignor_knows_racks(assignor):
    existing = topics(t=4)
    ((topic_id, topic),) = existing.items()
    racks = tuple(frozenset({rack}) for rack in ("y", "x", "y", "x"))
    existing[topic_id] = msgspec.structs.replace(topic, racks=racks)
    group = {
        name: msgspec.structs.replace(member, rack_id=rack)
        for (name, member), rack in zip(members("AB", existing).items(), "xy", strict=True)
    }
    target = assign(AssignorAdapter(assignor()), group, existing)
    assert target == {"A": {topic_id: (1, 3)}, "B": {topic_id: (0, 2)}}


def test_adapter_name_is_the_assignors_unless_given():
    assert AssignorAdapter(Sticky()).name == "sticky"
    assert AssignorAdapter(Sticky(), "other").name == "other"
