"""The range assignor in the broker."""

from __future__ import annotations

from random import Random

import msgspec

from interop.range_oracle import range_assignment
from partage.assignors.server_side import ServerSideRange, check_target

from .groups import assign, members, random_group, subscribed, topics, with_target

RANGE = ServerSideRange()


def test_range_members_own_equal_partitions_of_equal_topics():
    """Co-partitioning."""
    existing = topics(t=5, u=5)
    first, second = existing
    assert assign(RANGE, members("BA", existing), existing) == {
        "A": {first: (0, 1, 2), second: (0, 1, 2)},
        "B": {first: (3, 4), second: (3, 4)},
    }


def test_range_static_members_come_first():
    existing = topics(t=2)
    (topic_id,) = existing
    group = members("AB", existing)
    group["B"] = msgspec.structs.replace(group["B"], instance_id="z")
    assert assign(RANGE, group, existing) == {"B": {topic_id: (0,)}, "A": {topic_id: (1,)}}


def test_range_member_without_partition_has_empty_share():
    existing = topics(t=1)
    (topic_id,) = existing
    assert assign(RANGE, members("AB", existing), existing) == {"A": {topic_id: (0,)}, "B": {}}


def test_range_ignores_previous_target():
    existing = topics(t=2)
    (topic_id,) = existing
    group = with_target(members("AB", existing), {"B": {topic_id: (0, 1)}})
    assert assign(RANGE, group, existing) == {"A": {topic_id: (0,)}, "B": {topic_id: (1,)}}


def test_range_target_equals_definition():
    for seed in range(200):
        group, existing = random_group(Random(seed), RANGE)
        target = assign(RANGE, group, existing)
        check_target(group, subscribed(group, existing), target)
        keys = {
            name: f"0{member.instance_id}" if member.instance_id else f"1{name}"
            for name, member in group.items()
        }
        expected = range_assignment(
            {keys[name]: member.subscribed_topic_ids for name, member in group.items()},
            {topic_id: its.partition_count for topic_id, its in existing.items()},
        )
        assert {
            keys[name]: {(topic_id, number) for topic_id, its in share.items() for number in its}
            for name, share in target.items()
        } == expected
