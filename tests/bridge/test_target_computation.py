"""The computation of a target assignment: a valid one, or the reason why there is none."""

from __future__ import annotations

import pytest

from assignors.server_side.groups import members, topics
from partage.assignors.server_side import ServerSideAssignor, Uniform
from partage.bridge.target_computation import compute_target
from partage.coordinator.consumer_group.actions import ComputeTarget

T = topics(t=3)
(T_ID,) = T


class Fixed(ServerSideAssignor):
    name = "fixed"

    def __init__(self, target):
        self.target = target

    def assign(self, members, topics, *, is_homogeneous):
        if isinstance(self.target, Exception):
            raise self.target
        return self.target


def compute(assignor):
    action = ComputeTarget(
        group_id="g",
        sequence=1,
        group_epoch=2,
        assignor=assignor.name,
        members=members("AB", T),
        topics=T,
        is_homogeneous=True,
    )
    return compute_target(action, assignor)


def test_target_of_valid_assignor():
    assert compute(Uniform()) == ({"A": {T_ID: (0, 1)}, "B": {T_ID: (2,)}}, "")


def test_target_is_sorted_without_empty_topics():
    assert compute(Fixed({"A": {T_ID: [2, 0, 1]}, "B": {T_ID: []}})).target == {
        "A": {T_ID: (0, 1, 2)},
        "B": {},
    }


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ({"A": {T_ID: (0, 1, 2)}}, "'B' has no entry"),
        ({"A": {}, "B": {}, "C": {T_ID: (0, 1, 2)}}, "'C' is not a member of the group"),
        ({"A": {T_ID: (0, 1)}, "B": {}}, "t-2 is assigned to no member"),
        ({"A": {T_ID: (0, 1, 2)}, "B": {T_ID: (1,)}}, "t-1 is assigned more than once"),
        ({"A": {T_ID: (0, 1, 2, 3)}, "B": {}}, "t-3 is assigned, and t has 3 partitions"),
        ({"A": {T_ID: (0, 1, 2), b"x": (0,)}, "B": {}}, "to which it is not subscribed"),
    ],
)
def test_target_of_invalid_assignor_has_reason(target, problem):
    computed = compute(Fixed(target))
    assert computed.target is None
    assert computed.error.startswith("InvalidAssignmentError: ")
    assert problem in computed.error


def test_target_of_failing_assignor_has_its_exception():
    assert compute(Fixed(RuntimeError("no luck"))) == (None, "RuntimeError: no luck")
