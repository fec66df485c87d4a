"""Validation of assignments, and explanations."""

from __future__ import annotations

import msgspec
import pytest

from assignors import group_strategies
from partage.assignors import InvalidAssignmentError, check_assignment, explain_assignment

TOPICS = group_strategies.named(
    group_strategies.topic("a", 2),
    group_strategies.topic("b", 1),
    group_strategies.topic("unwanted", 3),
)
MEMBERS = group_strategies.members_of({"m1": "a b", "m2": "a"})


def test_valid_assignment_is_accepted():
    check_assignment(MEMBERS, TOPICS, {"m1": {"a": [0], "b": [0]}, "m2": {"a": [1]}})
    check_assignment(MEMBERS, TOPICS, {"m1": {"a": [0, 1], "b": [0]}})


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ({"m1": {"a": [0, 1], "b": [0]}, "m3": {}}, "'m3' is not a member"),
        ({"m1": {"a": [0], "b": [0]}}, "a-1 is assigned to 0 members, not 1"),
        ({"m1": {"a": [0, 1], "b": [0]}, "m2": {"a": [1]}}, "a-1 is assigned to 2 members, not 1"),
        ({"m1": {"a": [0, 1]}, "m2": {"b": [0]}}, "'m2' is assigned b, to which it is not"),
        ({"m1": {"a": [0, 1, 2], "b": [0]}}, "'m1' is assigned a-2, and a has 2 partitions"),
        ({"m1": {"a": [0, 1, -1], "b": [0]}}, "'m1' is assigned a--1, and"),
        ({"m1": {"a": [0, 1, 1], "b": [0]}}, "with a duplicate partition"),
    ],
)
def test_invalid_assignment_is_rejected(assignment, said):
    with pytest.raises(InvalidAssignmentError, match=said):
        check_assignment(MEMBERS, TOPICS, assignment)


def test_unknown_topic_is_rejected():
    with pytest.raises(InvalidAssignmentError, match="'m1' is assigned gone, which does not exist"):
        check_assignment(group_strategies.members_of({"m1": "gone"}), TOPICS, {"m1": {"gone": [0]}})


def test_replica_count_is_limited_by_subscribers():
    both = {"m1": {"a": [0, 1], "b": [0]}, "m2": {"a": [0, 1]}}
    check_assignment(MEMBERS, TOPICS, both, replicas=2)
    check_assignment(MEMBERS, TOPICS, both, replicas=3)
    with pytest.raises(InvalidAssignmentError, match="a-1 is assigned to 1 members, not 2"):
        check_assignment(
            MEMBERS, TOPICS, {"m1": {"a": [0, 1], "b": [0]}, "m2": {"a": [0]}}, replicas=2
        )


def test_cooperative_assignment_must_hold_back_owned():
    owning = [MEMBERS[0], msgspec.structs.replace(MEMBERS[1], owned={"a": (0, 1)}, generation=3)]
    check_assignment(owning, TOPICS, {"m1": {"b": [0]}, "m2": {"a": [0]}}, cooperative=True)
    with pytest.raises(
        InvalidAssignmentError, match=r"a-1 goes to 'm1' while another .* hold_back\(\)"
    ):
        check_assignment(
            owning, TOPICS, {"m1": {"a": [1], "b": [0]}, "m2": {"a": [0]}}, cooperative=True
        )
    with pytest.raises(InvalidAssignmentError, match="b-0 is assigned to 0 members"):
        check_assignment(owning, TOPICS, {"m2": {"a": [0, 1]}}, cooperative=True)
    with pytest.raises(InvalidAssignmentError, match="a-1 is assigned to 0 members"):
        check_assignment(owning, TOPICS, {"m1": {"b": [0]}, "m2": {"a": [0]}})


def test_explain_assignment_gives_reason_per_partition():
    members = group_strategies.members_of({"m1": "a", "m2": "a", "m3": "b"}, generation=4)
    owned = [{"a": (0, 1)}, {"a": (2, 3)}, {"a": (4,)}]
    members = [
        msgspec.structs.replace(member, owned=mine)
        for member, mine in zip(members, owned, strict=True)
    ]
    topics = group_strategies.named(
        group_strategies.topic("a", 6),
        group_strategies.topic("b", 1),
        group_strategies.topic("c", 1),
    )
    told = explain_assignment(
        members, topics, {"m1": {"a": [0, 2]}, "m2": {"a": [4, 5]}, "m3": {"b": [0]}}
    )
    assert {f"{r.topic}{r.partition}": (r.member_ids, r.reason) for r in told} == {
        "a0": (("m1",), "stays with its owner"),
        "a1": ((), "held back until it is revoked by m1"),
        "a2": (("m1",), "moved from m2 to balance the group"),
        "a3": ((), "held back until it is revoked by m2"),
        "a4": (("m2",), "no longer subscribed to by m3"),
        "a5": (("m2",), "no member owned it: it is new, or its owner left or revoked it"),
        "b0": (("m3",), "no member owned it: it is new, or its owner left or revoked it"),
        "c0": ((), "no member subscribes to the topic"),
    }
