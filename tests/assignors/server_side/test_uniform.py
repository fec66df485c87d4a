"""The uniform assignor: complete, balanced, sticky and deterministic."""

from __future__ import annotations

from random import Random

import pytest

from partage.assignors.server_side import Uniform, check_target

from .groups import (
    assign,
    is_homogeneous,
    kept,
    loads,
    members,
    random_group,
    subscribed,
    topics,
    unevenness,
    with_target,
)

UNIFORM = Uniform()
T = topics(t=4)
(T_ID,) = T


def test_uniform_without_members_is_empty():
    assert UNIFORM.assign({}, {}, is_homogeneous=True) == {}


@pytest.mark.parametrize("alike", [True, False])
def test_uniform_without_topics_has_entry_for_each_member(alike):
    group = members("AB", {})
    assert UNIFORM.assign(group, {}, is_homogeneous=alike) == {"A": {}, "B": {}}


def test_uniform_first_member_keeps_lowest_partitions():
    """As Kafka: the second member gets the rest."""
    first = assign(UNIFORM, members("A", T), T)
    assert first == {"A": {T_ID: (0, 1, 2, 3)}}
    second = assign(UNIFORM, with_target(members("BA", T), first), T)
    assert second == {"A": {T_ID: (0, 1)}, "B": {T_ID: (2, 3)}}


def test_uniform_unchanged_member_keeps_its_mapping():
    """A copy for each of thousands of members would take most of the time."""
    first = assign(UNIFORM, members("AB", T), T)
    second = assign(UNIFORM, with_target(members("AB", T), first), T)
    assert all(second[name] is first[name] for name in "AB")


def test_uniform_surplus_does_not_depend_on_order_of_members():
    """A coordinator loads the members in another order than they joined."""
    seven = topics(t=7)
    first = assign(UNIFORM, members("AB", seven), seven)
    loaded = with_target(members("ABC", seven), first)
    reordered = {name: loaded[name] for name in "CBA"}
    expected = assign(UNIFORM, loaded, seven)
    assert assign(UNIFORM, reordered, seven) == expected
    assert [sum(map(len, expected[name].values())) for name in "ABC"] == [3, 2, 2]


def test_uniform_surplus_is_taken_evenly_from_topics():
    many = topics(t=4, u=4)
    first = assign(UNIFORM, members("A", many), many)
    second = assign(UNIFORM, with_target(members("AB", many), first), many)
    assert all(list(map(len, share.values())) == [2, 2] for share in second.values())


def test_uniform_extra_partitions_stay():
    """Three partitions of two members: no partition moves, whatever the order of the members."""
    three = topics(t=3)
    (topic_id,) = three
    previous = {"A": {topic_id: (1,)}, "B": {topic_id: (0, 2)}}
    for names in ("AB", "BA"):
        assert assign(UNIFORM, with_target(members(names, three), previous), three) == previous


def test_uniform_partition_of_two_members_stays_with_one():
    """An upgraded group can have been assigned a partition twice by its own assignor."""
    previous = {"A": {T_ID: (0, 1, 2)}, "B": {T_ID: (2, 3)}}
    target = assign(UNIFORM, with_target(members("AB", T), previous), T)
    check_target(members("AB", T), T, target)
    assert loads(target) == [2, 2]


def test_uniform_target_is_valid_balanced_and_sticky():
    for seed in range(300):
        group, existing = random_group(Random(seed), UNIFORM)
        target = assign(UNIFORM, group, existing)
        check_target(group, subscribed(group, existing), target)
        if is_homogeneous(group):
            assert max(loads(target)) - min(loads(target)) <= 1
            total, count = sum(loads(target)), len(group)
            quota, extras = divmod(total, count)
            sizes = sorted(
                (
                    sum(
                        len(p) for t, p in member.target.items() if t in subscribed(group, existing)
                    )
                    for member in group.values()
                ),
                reverse=True,
            )
            best = sum(min(size, quota + (rank < extras)) for rank, size in enumerate(sizes))
            assert kept(group, target) == best
        assert assign(UNIFORM, group, existing) == target


def test_uniform_target_is_stable():
    """Without a change, no partition moves."""
    for seed in range(100):
        group, existing = random_group(Random(seed), UNIFORM)
        target = assign(UNIFORM, group, existing)
        again = assign(UNIFORM, with_target(group, target), existing)
        assert unevenness(again) == unevenness(target)
        assert kept(with_target(group, target), again) == sum(loads(target))
