"""Decisions of a streaming query: offsets, limits and plans. No Spark, no broker."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.client import TopicPartition
from partage.spark.stream.offset import (
    INITIAL_OFFSET,
    CheckpointError,
    QueryIdentity,
    StreamOffset,
    TopicSnapshot,
    check_identity,
    decode_offset,
    encode_offset,
)
from partage.spark.stream.planner import Planner
from partage.spark.stream.trigger_limits import TriggerLimits, share_limit

A, B, C = (TopicPartition("t", n) for n in range(3))
MARKS = {"t": TopicSnapshot("id", 3)}
WHOSE = QueryIdentity(cluster="c", servers="h:1", group="g", member="m", generation=4)

partitions = st.builds(TopicPartition, st.sampled_from("tu"), st.integers(0, 12))
ranges = st.tuples(st.integers(0, 2**62), st.integers(0, 1000)).map(lambda r: (r[0], sum(r)))


class TestOffsets:
    @given(
        st.builds(
            StreamOffset,
            seq=st.integers(1, 99),
            identity=st.just(WHOSE),
            topics=st.just(MARKS),
            ranges=st.dictionaries(partitions, ranges),
            lag=st.dictionaries(partitions, st.integers(0, 9)),
        )
    )
    def test_offset_round_trip_is_deterministic(self, offset):
        text = json.dumps(encode_offset(offset))
        kept = decode_offset(json.loads(text))
        assert kept == offset
        assert json.dumps(encode_offset(kept)) == text
        assert list(json.loads(text)) == sorted(json.loads(text))

    def test_initial_offset_is_constant(self):
        assert encode_offset(INITIAL_OFFSET) == {"ranges": {}, "seq": 0, "v": 1}
        assert decode_offset(encode_offset(INITIAL_OFFSET)) == INITIAL_OFFSET
        assert INITIAL_OFFSET.is_initial
        assert INITIAL_OFFSET.ranges_to_read == []

    def test_ranges_to_read_are_sorted_and_nonempty(self):
        offset = StreamOffset(seq=1, ranges={B: (5, 9), A: (3, 3), C: (0, 1)})
        assert offset.ranges_to_read == [(B, 5, 9), (C, 0, 1)]

    @pytest.mark.parametrize(
        "kept", [{}, {"z": 10}, {"v": 2}, {"v": 1}, {"v": 1, "seq": 1, "ranges": {"t": {"0": 3}}}]
    )
    def test_foreign_offset_is_rejected(self, kept):
        with pytest.raises(CheckpointError, match="the checkpoint's offsets"):
            decode_offset(kept)

    def test_offset_of_other_cluster_or_group_is_rejected(self):
        offset = StreamOffset(seq=3, identity=WHOSE)
        check_identity(offset, "c", "g")
        check_identity(offset, None, "g")  # a broker without a cluster id
        check_identity(INITIAL_OFFSET, "other", None)
        with pytest.raises(CheckpointError, match="another cluster"):
            check_identity(offset, "other", "g")
        with pytest.raises(
            CheckpointError, match="in group 'g', and this one is outside any group"
        ):
            check_identity(offset, "c", None)


class TestShares:
    @given(st.dictionaries(partitions, st.integers(0, 10_000)), st.integers(1, 20_000) | st.none())
    def test_limit_is_shared_in_proportion(self, sizes, limit):
        found = share_limit(sizes, limit)
        total = sum(sizes.values())
        assert sum(found.values()) == (total if limit is None else min(limit, total))
        assert found.keys() == sizes.keys()
        for partition, size in sizes.items():
            assert 0 <= found[partition] <= size
            if limit is not None and limit < total:
                assert abs(found[partition] - size * limit / total) < 1

    def test_remainder_goes_to_largest_fractions(self):
        assert share_limit({A: 10, B: 10, C: 1}, 10) == {A: 5, B: 5, C: 0}
        assert share_limit({A: 2, B: 2, C: 2}, 2) == {A: 1, B: 1, C: 0}

    def test_batch_waits_for_minimum_or_maximum_delay(self):
        pace = TriggerLimits(records_min=10, delay_max_ms=1000)
        assert pace.is_batch_due(1, None)  # the first batch does not wait
        assert not pace.is_batch_due(9, 999)
        assert pace.is_batch_due(10, 0)
        assert pace.is_batch_due(1, 1000)


def plan(planner, ends, **pace):
    return planner.plan(ends, TriggerLimits(**pace), 0, WHOSE, MARKS)


def holding(*held, start=INITIAL_OFFSET, committed=None):
    planner = Planner()
    planner.complete_batch(start)
    planner.update_owned(dict.fromkeys(held, 1))
    for partition in planner.without_position:
        planner.set_first_position(partition, (committed or {}).get(partition), 0)
    return planner


class TestPlans:
    def test_plan_reads_from_positions_to_ends(self):
        planner = holding(A, B, committed={A: 5})
        end = plan(planner, {A: 8, B: 2})
        assert end.ranges == {A: (5, 8), B: (0, 2)}
        assert end.lag == {A: 0, B: 0}
        assert (end.seq, end.identity, end.topics) == (1, WHOSE, MARKS)

    def test_repeated_plan_is_equal(self):
        planner = holding(A)
        assert plan(planner, {A: 8}).ranges == plan(planner, {A: 8}).ranges == {A: (0, 8)}

    def test_only_finished_batches_are_committed(self):
        planner = holding(A, committed={A: 0})
        end = plan(planner, {A: 8}, records_max=5)
        assert planner.offsets_to_commit() == {}
        planner.complete_batch(end)
        assert planner.offsets_to_commit() == {A: 5}
        planner.record_commit({A: 5})
        assert planner.offsets_to_commit() == {}
        assert plan(planner, {A: 8}).ranges == {A: (5, 8)}
        assert end.lag == {A: 3}

    def test_first_position_is_committed_at_once(self):
        """Otherwise the next owner would look it up again and skip the records in between."""
        planner = Planner()
        planner.update_owned({A: 1})
        planner.set_first_position(A, None, 7)
        assert planner.offsets_to_commit() == {A: 7}

    def test_first_position_is_later_of_checkpoint_and_commit(self):
        start = StreamOffset(seq=4, ranges={A: (0, 10), B: (0, 10)})
        planner = holding(A, B, C, start=start, committed={A: 4, B: 40})
        assert planner.positions == {A: 10, B: 40, C: 0}
        assert planner.offsets_to_commit() == {A: 10, C: 0}

    def test_unowned_partition_is_not_planned(self):
        planner = holding(A, B)
        end = plan(planner, {A: 3, B: 3})
        planner.update_owned({A: 1})
        planner.complete_batch(end)
        assert planner.offsets_to_commit() == {A: 3}
        assert plan(planner, {A: 4, B: 4}).ranges == {A: (3, 4)}

    def test_reacquired_partition_starts_at_committed_offset(self):
        planner = holding(A, committed={A: 0})
        planner.complete_batch(plan(planner, {A: 8}))
        planner.update_owned({A: 2})  # revoked and assigned again between two calls
        assert planner.without_position == [A]
        assert planner.offsets_to_commit() == {}
        planner.set_first_position(A, 20, 0)
        assert planner.positions == {A: 20}

    def test_first_position_of_unowned_partition_is_ignored(self):
        planner = Planner()
        planner.update_owned({A: 1})
        planner.update_owned({})
        planner.set_first_position(A, 3, 0)
        assert planner.positions == {}

    def test_reset_position_skips_deleted_records(self):
        planner = holding(A)
        planner.reset_position(A, 6)
        assert plan(planner, {A: 9}).ranges == {A: (6, 9)}

    def test_truncated_partition_continues_at_its_end(self):
        start = StreamOffset(seq=4, ranges={A: (0, 10)})
        planner = holding(A, start=start, committed={A: 10})
        planner.reset_position(A, 2)
        # so that Spark stores the new position
        assert planner.is_batch_due({A: 2}, TriggerLimits(), 0)
        end = plan(planner, {A: 2})
        assert end.ranges == {A: (2, 2)}
        assert not planner.is_batch_due({A: 2}, TriggerLimits(), 0)
        planner.complete_batch(end)
        assert planner.offsets_to_commit() == {A: 2}
        assert plan(planner, {A: 3}).ranges == {A: (2, 3)}

    def test_no_new_records_plan_no_batch(self):
        planner = holding(A, committed={A: 3})
        assert not planner.is_batch_due({A: 3}, TriggerLimits(), 0)
        assert not planner.is_batch_due({}, TriggerLimits(), 0)
        assert planner.is_batch_due({A: 4}, TriggerLimits(), 0)

    def test_partition_with_unknown_end_keeps_position(self):
        planner = holding(A, B, committed={B: 2})
        assert plan(planner, {A: 1}).ranges == {A: (0, 1), B: (2, 2)}
