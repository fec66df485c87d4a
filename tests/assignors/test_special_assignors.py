"""The assignors with a special purpose: weighted, co-partitioned, redundant and others."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignors import group_strategies
from partage.assignors import (
    Canary,
    ConsistentHashing,
    CooperativeSticky,
    CoPartitioned,
    CoPartitioningError,
    LagBased,
    Member,
    RackAware,
    Redundant,
    Sticky,
    Weighted,
    check_assignment,
)


def counts(assignment):
    return {m: sum(map(len, mine.values())) for m, mine in assignment.items()}


def left(members, member_id):
    return [member for member in members if member.member_id != member_id]


class TestWeighted:
    def members(self, **weights):
        return [
            Member(member_id=m, topics=("a",), user_data=Weighted(weight).user_data((), {}, 0))
            for m, weight in weights.items()
        ]

    def test_weighted_assigns_in_proportion(self):
        members = self.members(m1=1, m2=2, m3=5)
        given_out = Weighted().assign(
            members, group_strategies.named(group_strategies.topic("a", 16))
        )
        assert counts(given_out) == {"m1": 2, "m2": 4, "m3": 10}

    def test_weighted_is_sticky_when_a_member_leaves(self):
        members = self.members(m1=1, m2=2, m3=1)
        topics = group_strategies.named(group_strategies.topic("a", 12))
        members = group_strategies.owning(members, Weighted().assign(members, topics))
        after = Weighted().assign(left(members, "m3"), topics)
        assert counts(after) == {"m1": 4, "m2": 8}
        assert group_strategies.kept(left(members, "m3"), after) == 9

    @settings(max_examples=40)
    @given(st.lists(st.sampled_from([0.5, 1, 2, 4, 7]), min_size=1, max_size=6), st.integers(0, 60))
    def test_weighted_deviation_is_at_most_one_partition(self, weights, count):
        members = self.members(**{f"m{n}": weight for n, weight in enumerate(weights)})
        given_out = counts(
            Weighted().assign(members, group_strategies.named(group_strategies.topic("a", count)))
        )
        for mine, weight in zip(given_out.values(), weights, strict=True):
            for its, other in zip(given_out.values(), weights, strict=True):
                # One more partition moved would not improve the proportion of the two members.
                assert mine == 0 or (mine - 0.5) / weight <= (its + 0.5) / other

    @pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf")])
    def test_weighted_rejects_invalid_weight(self, weight):
        with pytest.raises(ValueError, match=r"expected a (positive )?number"):
            Weighted(weight)

    @pytest.mark.parametrize("data", [b"", b"4", b"\xff" * 8, b"\0" * 8])
    def test_weighted_invalid_user_data_counts_as_one(self, data):
        members = [*self.members(m1=3), Member(member_id="m2", topics=("a",), user_data=data)]
        given_out = Weighted().assign(
            members, group_strategies.named(group_strategies.topic("a", 8))
        )
        assert counts(given_out) == {"m1": 6, "m2": 2}


class TestCoPartitioned:
    def test_co_partitioned_numbers_go_to_one_member(self):
        topics = group_strategies.named(
            group_strategies.topic("a", 5),
            group_strategies.topic("b", 5),
            group_strategies.topic("c", 2),
        )
        members = group_strategies.members_of({"m1": "a b c", "m2": "a b c", "m3": "c"})
        given_out = CoPartitioned("a", "b").assign(members, topics)
        assert given_out["m1"]["a"] == given_out["m1"]["b"]
        assert given_out["m2"]["a"] == given_out["m2"]["b"]
        assert given_out["m3"] == {"c": [0]}  # The member without partitions comes first
        check_assignment(members, topics, given_out)

    @settings(max_examples=40)
    @given(group_strategies.fresh_groups(alike=True), st.data())
    def test_like_topics_stay_together_through_changes(self, group, data):
        members, topics = group
        assignor = CoPartitioned()
        for generation in range(1, 5):
            members = group_strategies.owning(members, assignor.assign(members, topics), generation)
            if generation == 1:
                keep = data.draw(st.integers(1, len(members)))
                members = members[:keep]
        by_count = {}
        for name in set(members[0].topics) & set(topics):
            by_count.setdefault(topics[name].partition_count, []).append(name)
        for alike in by_count.values():
            for member in members:
                assert len({tuple(sorted(member.owned.get(name, ()))) for name in alike}) == 1

    def test_co_partitioned_is_sticky_when_a_member_leaves(self):
        topics = group_strategies.named(
            group_strategies.topic("a", 6), group_strategies.topic("b", 6)
        )
        members = group_strategies.members_of({"m1": "a b", "m2": "a b", "m3": "a b"})
        members = group_strategies.owning(members, CoPartitioned().assign(members, topics))
        remaining = left(members, "m2")
        after = CoPartitioned().assign(remaining, topics)
        assert group_strategies.kept(remaining, after) == 8
        assert counts(after) == {"m1": 6, "m3": 6}

    def test_co_partitioned_rejects_unsuitable_topics(self):
        topics = group_strategies.named(
            group_strategies.topic("a", 3), group_strategies.topic("b", 4)
        )
        members = group_strategies.members_of({"m1": "a b"})
        with pytest.raises(CoPartitioningError, match="a has 3, b has 4"):
            CoPartitioned("a", "b").assign(members, topics)
        topics = group_strategies.named(
            group_strategies.topic("a", 3), group_strategies.topic("b", 3)
        )
        members = group_strategies.members_of({"m1": "a", "m2": "b"})
        with pytest.raises(CoPartitioningError, match="no member subscribes to all of a, b"):
            CoPartitioned("a", "b").assign(members, topics)


class TestRedundant:
    @settings(max_examples=40)
    @given(group_strategies.claiming_groups(alike=True), st.integers(1, 4))
    def test_redundant_is_even_and_on_distinct_members(self, group, replicas):
        members, topics = group
        given_out = Redundant(replicas).assign(members, topics)
        check_assignment(members, topics, given_out, replicas=replicas)
        loads = group_strategies.loads(members, given_out)
        assert max(loads) - min(loads) <= 1

    def test_redundant_moves_only_lost_replicas(self):
        topics = group_strategies.named(group_strategies.topic("a", 8))
        members = group_strategies.members_of(dict.fromkeys(["m1", "m2", "m3", "m4"], "a"))
        members = group_strategies.owning(members, Redundant(2).assign(members, topics))
        remaining = left(members, "m4")
        after = Redundant(2).assign(remaining, topics)
        assert group_strategies.kept(remaining, after) == 12
        assert sorted(counts(after).values()) == [5, 5, 6]

    def test_redundant_returns_copies_to_returning_member(self):
        topics = group_strategies.named(group_strategies.topic("a", 12))
        members = group_strategies.members_of(dict.fromkeys(["m1", "m2", "m3"], "a"))
        before = Redundant(2).assign(members, topics)
        members = group_strategies.owning(members, before)
        remaining = left(members, "m3")
        remaining = group_strategies.owning(remaining, Redundant(2).assign(remaining, topics))
        assert all(len(member.owned["a"]) == 12 for member in remaining)
        had = {"a": before["m3"]["a"], "gone": [1]}
        said = Redundant(2, copies=lambda: had).user_data(("a",), {}, -1)
        back = Member(member_id="m3-again", topics=("a",), user_data=said)
        after = Redundant(2).assign([*remaining, back], topics)
        assert sorted(after["m3-again"]["a"]) == sorted(before["m3"]["a"])
        assert sorted(counts(after).values()) == [8, 8, 8]

    def test_copies_are_assigned_in_given_order(self):
        topics = group_strategies.named(group_strategies.topic("a", 4))
        members = group_strategies.members_of({"m1": "a"})
        members = group_strategies.owning(members, Redundant(1).assign(members, topics))
        said = Redundant(1, copies=lambda: {"a": [3, 1, 0]}).user_data(("a",), {}, -1)
        back = Member(member_id="m2", topics=("a",), user_data=said)
        after = Redundant(1).assign([*members, back], topics)
        assert sorted(after["m2"]["a"]) == [1, 3]

    def test_copies_of_member_without_partitions_come_first(self):
        topics = group_strategies.named(group_strategies.topic("a", 4))
        members = [
            Member(member_id="m1", topics=("a",), user_data=b'{"a":[2,3]}'),
            Member(member_id="m2", topics=("a",), user_data=b'{"a":[0,1]}'),
        ]
        assert Redundant(1).assign(members, topics) == {"m1": {"a": [2, 3]}, "m2": {"a": [0, 1]}}

    @pytest.mark.parametrize("data", [b"", b"?", b'{"a":"x"}', b'{"a":[99,-1],"b":[0]}', b"\xff"])
    def test_invalid_copies_are_ignored(self, data):
        topics = group_strategies.named(
            group_strategies.topic("a", 4), group_strategies.topic("b", 1)
        )
        members = [Member(member_id=f"m{n}", topics=("a",), user_data=data) for n in (1, 2, 3)]
        given_out = Redundant(2).assign(members, topics)
        check_assignment(members, topics, given_out, replicas=2)

    def test_redundant_rejects_zero_replicas(self):
        with pytest.raises(ValueError, match="replicas=0: expected an integer of 1 or more"):
            Redundant(0)


class TestConsistentHashing:
    topics = group_strategies.named(group_strategies.topic("a", 200))

    def members(self, count):
        return group_strategies.members_of({f"m{number}": "a" for number in range(count)})

    def test_load_is_at_most_the_headroom_above_average(self):
        for headroom in 0, 0.1, 0.25:
            given_out = ConsistentHashing(headroom=headroom).assign(self.members(10), self.topics)
            assert max(counts(given_out).values()) <= 20 * (1 + headroom)

    def test_few_partitions_move_without_state(self):
        assignor = ConsistentHashing()
        ten = group_strategies.owning(
            self.members(10), assignor.assign(self.members(10), self.topics)
        )
        forgetful = self.members(9)
        moved = 200 - group_strategies.kept(ten[:9], assignor.assign(forgetful, self.topics))
        assert 10 <= moved <= 60  # The leaver had a tenth; round-robin would move 180

    def test_static_member_keeps_positions_under_any_id(self):
        def shares(*ids):
            members = [
                Member(member_id=id_, instance_id=f"i{number}", topics=("a",))
                for number, id_ in enumerate(ids)
            ]
            return list(ConsistentHashing().assign(members, self.topics).values())

        assert shares("x", "y", "z") == shares("c", "b", "a")

    def test_hashes_are_platform_independent(self):
        few = group_strategies.named(group_strategies.topic("a", 8))
        assert ConsistentHashing().assign(self.members(3), few) == {
            "m0": {"a": [2, 3, 5, 7]},
            "m1": {"a": [0, 4]},
            "m2": {"a": [1, 6]},
        }

    def test_invalid_ring_parameters_are_rejected(self):
        with pytest.raises(ValueError, match="points=0: expected an integer of 1 or more"):
            ConsistentHashing(points=0)


class TestLagBased:
    def test_largest_lags_go_to_different_members(self):
        topics = group_strategies.named(group_strategies.topic("a", 4, lags=[100, 90, 10, 5]))
        members = group_strategies.members_of({"m1": "a", "m2": "a"})
        assert LagBased().assign(members, topics) == {"m1": {"a": [0, 3]}, "m2": {"a": [1, 2]}}

    @settings(max_examples=40)
    @given(st.lists(st.integers(0, 1000), max_size=30), st.integers(1, 5))
    def test_lag_based_partition_counts_stay_even(self, lags, count):
        topics = group_strategies.named(group_strategies.topic("a", len(lags), lags=lags))
        members = group_strategies.members_of({f"m{number}": "a" for number in range(count)})
        given_out = LagBased().assign(members, topics)
        loads = group_strategies.loads(members, given_out)
        assert max(loads) - min(loads) <= 1
        to_read = [sum(lags[p] for p in mine.get("a", ())) for mine in given_out.values()]
        assert max(to_read) - min(to_read) <= max(lags, default=0)

    def test_unknown_lags_count_as_zero(self):
        topics = group_strategies.named(
            group_strategies.topic("a", 3, lags=[7]), group_strategies.topic("b", 1)
        )
        members = group_strategies.members_of({"m1": "a b", "m2": "a b"})
        assert counts(LagBased().assign(members, topics)) == {"m1": 2, "m2": 2}
        assert LagBased.needs_lags


class TestCanary:
    topics = group_strategies.named(group_strategies.topic("a", 20))

    def members(self, old, new, share=0.1):
        said = Canary("2.0", share=share).user_data((), {}, 0)
        return [
            *group_strategies.members_of({f"old{n}": "a" for n in range(old)}),
            *group_strategies.members_of({f"new{n}": "a" for n in range(new)}, user_data=said),
        ]

    def test_canaries_get_exactly_their_share(self):
        assert counts(Canary().assign(self.members(3, 1), self.topics)) == {
            "old0": 6,
            "old1": 6,
            "old2": 6,
            "new0": 2,
        }

    def test_canary_share_is_independent_of_member_count(self):
        given_out = counts(Canary().assign(self.members(2, 3), self.topics))
        assert sum(given_out[f"new{n}"] for n in range(3)) == 2

    def test_canary_gets_at_least_one_partition(self):
        given_out = counts(Canary().assign(self.members(2, 1, share=0.001), self.topics))
        assert given_out == {"old0": 10, "old1": 9, "new0": 1}

    def test_canaries_alone_get_all_partitions(self):
        assert counts(Canary().assign(self.members(0, 2), self.topics)) == {"new0": 10, "new1": 10}

    def test_canary_partitions_stay_while_others_change(self):
        members = self.members(3, 1)
        members = group_strategies.owning(members, Canary().assign(members, self.topics))
        after = Canary().assign(left(members, "old1"), self.topics)
        assert after["new0"] == {"a": [18, 19]}
        assert members[3].owned == {"a": (18, 19)}
        assert counts(after) == {"old0": 9, "old2": 9, "new0": 2}

    def test_without_shares_all_members_are_equal(self):
        members = self.members(3, 1, share=0)
        assert set(counts(Canary().assign(members, self.topics)).values()) == {5}

    def test_canary_rejects_invalid_share(self):
        with pytest.raises(ValueError, match="expected a number, from 0 to 1"):
            Canary("2.0", share=10)


class TestRacks:
    def matched(self, members, topics, given_out):
        return sum(
            member.rack in topics[name].racks[partition]
            for member in members
            for name, partitions in given_out[member.member_id].items()
            for partition in partitions
        )

    def members(self, *racks):
        return [
            Member(member_id=f"m{number}", topics=("a", "b"), rack=rack)
            for number, rack in enumerate(racks)
        ]

    def test_racks_are_matched_where_possible(self):
        topics = group_strategies.named(
            group_strategies.topic("a", 6, "xyzxyz"), group_strategies.topic("b", 3, "zzx")
        )
        members = self.members("z", "y", "x")
        given_out = CooperativeSticky().assign(members, topics)
        check_assignment(members, topics, given_out)
        assert set(counts(given_out).values()) == {3}
        assert self.matched(members, topics, given_out) == 8  # Rack z has one partition too many

    def test_even_loads_come_before_racks(self):
        topics = group_strategies.named(group_strategies.topic("a", 4, "xxxx"))
        given_out = CooperativeSticky().assign(self.members("x", "y"), topics)
        assert counts(given_out) == {"m0": 2, "m1": 2}

    def test_racks_come_before_stickiness(self):
        topics = group_strategies.named(group_strategies.topic("a", 2, "xy"))
        members = self.members("x", "y")
        members = group_strategies.owning(members, {"m0": {"a": [1]}, "m1": {"a": [0]}})
        first = CooperativeSticky().assign(members, topics)
        assert first == {"m0": {}, "m1": {}}
        after = CooperativeSticky().assign(group_strategies.owning(members, first, 2), topics)
        assert after == {"m0": {"a": [0]}, "m1": {"a": [1]}}

    def test_nothing_moves_if_all_racks_have_all_replicas(self):
        topics = group_strategies.named(group_strategies.topic("a", 2, ["xy", "yx"]))
        members = self.members("x", "y")
        members = group_strategies.owning(members, {"m0": {"a": [1]}, "m1": {"a": [0]}})
        given_out = CooperativeSticky().assign(members, topics)
        assert given_out == {"m0": {"a": [1]}, "m1": {"a": [0]}}

    def test_rack_of_broker_from_host_name(self):
        assignor = RackAware(lambda host: host.partition(".")[2] or None)
        assert assignor.rack_of_broker("b1.east", None) == "east"
        assert assignor.rack_of_broker("b1.east", "r7") == "r7"
        assert assignor.rack_of_broker("b1", None) is None
        assert CooperativeSticky().rack_of_broker("b1.east", None) is None


def test_explain_cooperative_assignment():
    topics = group_strategies.named(group_strategies.topic("a", 2))
    members = group_strategies.members_of({"m1": "a", "m2": "a"}, generation=3)
    members[0] = msgspec.structs.replace(members[0], owned={"a": (0, 1)})
    assignor = CooperativeSticky()
    told = assignor.explain(members, topics, assignor.assign(members, topics))
    assert [(its.partition, its.member_ids, its.reason) for its in told] == [
        (0, ("m1",), "stays with its owner"),
        (1, (), "held back until it is revoked by m1"),
    ]


def test_explain_sticky_uses_user_data():
    topics = group_strategies.named(group_strategies.topic("a", 2))
    told = Sticky()
    told.on_assignment({"a": [0, 1]}, 3)
    members = group_strategies.members_of({"m1": "a", "m2": "a"})
    members[0] = msgspec.structs.replace(members[0], user_data=told.user_data(["a"], {}, 3))
    explained = told.explain(members, topics, told.assign(members, topics))
    assert [(its.member_ids, its.owner_ids, its.reason) for its in explained] == [
        (("m1",), ("m1",), "stays with its owner"),
        (("m2",), ("m1",), "moved from m1 to balance the group"),
    ]
