"""Properties that every assignor must have."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assignors import group_strategies
from partage.assignors import (
    Assignor,
    Canary,
    ConsistentHashing,
    CooperativeSticky,
    CoPartitioned,
    IncompatibleAssignorsError,
    LagBased,
    RackAware,
    Range,
    RebalanceProtocol,
    Redundant,
    RoundRobin,
    Sticky,
    Weighted,
    check_assignment,
    hold_back,
    protocols_by_name,
    rebalance_protocol,
)

ALL = (
    Range(),
    RoundRobin(),
    Sticky(),
    CooperativeSticky(),
    RackAware(),
    CoPartitioned(),
    Redundant(2),
    Weighted(2),
    ConsistentHashing(points=5),
    LagBased(),
    Canary(),
)
BY_NAME = [pytest.param(assignor, id=assignor.name) for assignor in ALL]
COOPERATIVE = [
    pytest.param(assignor, id=assignor.name)
    for assignor in ALL
    if RebalanceProtocol.COOPERATIVE in assignor.rebalance_protocols
]


@st.composite
def full_groups(draw: st.DrawFn) -> group_strategies.Group:
    """Draw a group with claims, racks, lags, and valid or invalid user data."""
    members, topics = draw(group_strategies.claiming_groups())
    said = st.sampled_from(
        [
            b"",
            b"?",
            *(Weighted(weight).user_data((), {}, 0) for weight in (0.5, 1, 3)),
            *(Canary("new", share=share).user_data((), {}, 0) for share in (0.1, 0.5, 1)),
            Canary("old").user_data((), {}, 0),
        ]
    )
    racks = st.sampled_from([None, "x", "y", "z"])
    members = [
        msgspec.structs.replace(member, user_data=draw(said), rack=draw(racks))
        for member in members
    ]
    words = st.sampled_from(["x", "y", "xy", "xz", ""])
    topics = {
        name: group_strategies.topic(
            name,
            its.partition_count,
            draw(st.lists(words, max_size=its.partition_count)),
            draw(st.lists(st.integers(0, 99), max_size=its.partition_count)),
        )
        for name, its in topics.items()
    }
    return members, topics


def check(assignor, members, topics, assignment, **how):
    members = assignor.with_user_data(members)
    check_assignment(members, topics, assignment, replicas=assignor.replicas, **how)


@pytest.mark.parametrize("assignor", BY_NAME)
@settings(max_examples=30)
@given(group=full_groups())
def test_assign_gives_all_partitions_to_subscribers(assignor, group):
    members, topics = group
    cooperative = RebalanceProtocol.COOPERATIVE in assignor.rebalance_protocols
    check(assignor, members, topics, assignor.assign(members, topics), cooperative=cooperative)


@pytest.mark.parametrize("assignor", BY_NAME)
@settings(max_examples=20)
@given(group=full_groups(), shuffling=st.randoms(use_true_random=False))
def test_assign_ignores_input_order(assignor, group, shuffling):
    members, topics = group
    shuffled = shuffling.sample(members, len(members))
    again = assignor.assign(shuffled, dict(reversed(topics.items())))
    assert again == assignor.assign(members, topics)


@pytest.mark.parametrize("assignor", COOPERATIVE)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(group=full_groups(), data=st.data())
def test_cooperative_groups_become_stable(assignor, group, data):
    members, topics = group
    for generation in range(4, 30):
        given_out = assignor.assign(members, topics)
        after = group_strategies.owning(members, given_out, generation)
        if [m.owned for m in after] == [m.owned for m in members]:
            break
        members = after
    check(assignor, members, topics, given_out)
    assert group_strategies.owning(members, assignor.assign(members, topics), generation) == after


@pytest.mark.parametrize("assignor", BY_NAME)
def test_assign_without_members_or_topics(assignor):
    assert assignor.assign([], group_strategies.named(group_strategies.topic("a", 3))) == {}
    members = group_strategies.members_of({"m1": "a", "m2": ""})
    assert assignor.assign(members, {}) == {"m1": {}, "m2": {}}
    empty = group_strategies.named(group_strategies.topic("a", 0))
    assert group_strategies.flat(assignor.assign(members, empty)) == {"m1": {}, "m2": {}}


def test_names_equal_kafkas():
    assert [assignor.name for assignor in ALL[:4]] == [
        "range",
        "roundrobin",
        "sticky",
        "cooperative-sticky",
    ]
    assert len({assignor.name for assignor in ALL}) == len(ALL)


# Several assignors, and several versions of one


class Mine(Assignor):
    name = "mine"
    versions = (2, 1, 0)
    rebalance_protocols = (RebalanceProtocol.COOPERATIVE,)

    def assign(self, members, topics):
        return hold_back(members, Range().assign(members, topics))


def test_each_version_is_a_protocol_newest_first():
    by_name = protocols_by_name([Mine(), Range()])
    assert list(by_name) == ["mine-v2", "mine-v1", "mine", "range"]
    assert [its.version for its in by_name.values()] == [2, 1, 0, 0]
    assert Mine().protocol_name == "mine-v2"
    with pytest.raises(ValueError, match="mine has no version 3"):
        Mine().at_version(3)


def test_incompatible_assignors_are_rejected():
    with pytest.raises(IncompatibleAssignorsError, match="two assignors are named 'range'"):
        protocols_by_name([Range(), Range()])
    with pytest.raises(IncompatibleAssignorsError, match="needs an assignor"):
        protocols_by_name([])


@pytest.mark.parametrize("attributes", [{}, {"name": ""}, {"name": b"mine"}])
def test_assignor_without_name_is_rejected(attributes):
    nameless = type("Nameless", (Assignor,), {"assign": Range.assign, **attributes})
    with pytest.raises(IncompatibleAssignorsError, match=r"Nameless\.name is .*; set it to a name"):
        protocols_by_name([nameless()])


def test_rebalance_protocol_is_highest_common_one():
    assert rebalance_protocol([CooperativeSticky()]) is RebalanceProtocol.COOPERATIVE
    assert rebalance_protocol([Range(), CooperativeSticky()]) is RebalanceProtocol.EAGER
    with pytest.raises(IncompatibleAssignorsError, match=r"mine \(cooperative\), range \(eager\)"):
        rebalance_protocol([Mine(), Range()])
