"""The fetch state machine: planned fetches, effects of results, and deliveries."""

import logging

import pytest

from partage.client import EARLIEST
from partage.client.consumer.errors import (
    NoOffsetForPartitionError,
    NotAssignedError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
)
from partage.client.consumer.fetch_state_machine import (
    FetchedData,
    OutOfRange,
    PermanentFailure,
    Placement,
    RetryLater,
)
from partage.client.consumer.partition_state import (
    TO_EARLIEST,
    TO_LATEST,
    FetchedChunk,
    LogOffsets,
    ResetTarget,
)

from .fetch_fixtures import EVERYWHERE, HERE, THERE, A, B, C, made, yes

#: Another topic of the same name.
ANEW = {A: Placement(HERE.leadership, b"u" * 16)}


def asked(fetches):
    return {f.broker_id: [(w.permit.partition, w.offset) for w in f.partitions] for f in fetches}


def part(first, count, size=10):
    return FetchedData(
        FetchedChunk(first, first + count, size, f"{first}+{count}"), LogOffsets(0, 100, 100)
    )


def answer(positions, fetch, *answers):
    for wanted, said in zip(fetch.partitions, answers, strict=True):
        positions.partition_answered(wanted, said, 0)
    positions.fetch_done(fetch)


def fetch(positions, *answers, now_ms=0):
    """Answer the one fetch that is due."""
    (one,) = positions.fetches(EVERYWHERE, now_ms)
    answer(positions, one, *answers)


def stretches(taken):
    return [(t.permit.partition, t.from_offset, t.to_offset) for t in taken]


class TestBeginning:
    def test_new_partition_looks_up_committed_offset_first(self):
        positions = made(A, at=None)
        (lookup,) = positions.lookups({}, 0)
        assert lookup.reset is None
        assert positions.lookups(EVERYWHERE, 0) == []  # a lookup is in flight
        assert positions.position(A) is None
        positions.lookup_succeeded(lookup, 7)
        assert positions.position(A) == 7
        assert asked(positions.fetches(EVERYWHERE, 0)) == {1: [(A, 7)]}

    def test_no_committed_offset_uses_reset_policy(self):
        positions = made(A, at=None, policy=ResetTarget(back_ms=1000))
        positions.lookup_succeeded(*positions.lookups({}, 0), None)
        assert positions.lookups({}, 0) == []  # the topic's leaders are unknown
        (lookup,) = positions.lookups(EVERYWHERE, 0)
        assert lookup.reset.timestamp_at(5000) == 4000
        positions.lookup_succeeded(lookup, 3)
        assert positions.position(A) == 3

    def test_no_committed_offset_without_policy_raises(self):
        positions = made(A, at=None, policy=None)
        for _ in range(2):
            positions.lookup_succeeded(*positions.lookups(EVERYWHERE, 0), None)
            assert positions.is_ready(yes)
            assert isinstance(positions.pop_error(), NoOffsetForPartitionError)
            assert positions.pop_error() is None

    def test_lookup_transient_failure_is_retried(self):
        positions = made(A, at=None)
        (lookup,) = positions.lookups(EVERYWHERE, 0)
        positions.lookup_failed(lookup, RetryLater(50))
        assert positions.lookups(EVERYWHERE, 49) == []
        assert positions.retry_at_ms(0) == 50
        assert positions.retry_at_ms(50) is None
        assert len(positions.lookups(EVERYWHERE, 50)) == 1

    def test_lookup_permanent_failure_is_raised_and_retried(self):
        positions = made(A, at=None)
        error = OSError("no")
        positions.lookup_failed(*positions.lookups(EVERYWHERE, 0), PermanentFailure(error))
        assert positions.lookups(EVERYWHERE, 0) == []
        assert positions.pop_error() is error
        assert len(positions.lookups(EVERYWHERE, 0)) == 1

    def test_seek_makes_pending_lookup_stale(self):
        positions = made(A, at=None)
        (lookup,) = positions.lookups(EVERYWHERE, 0)
        positions.seek(A, 5)
        positions.lookup_succeeded(lookup, 99)
        positions.lookup_failed(lookup, PermanentFailure(OSError()))
        assert positions.position(A) == 5
        assert positions.pop_error() is None


class TestFetching:
    def test_fetches_at_most_one_per_leader(self):
        positions = made(A, B, C)
        first, second = positions.fetches(EVERYWHERE, 0)
        assert asked([first, second]) == {1: [(A, 0), (B, 0)], 2: [(C, 0)]}
        assert positions.fetches(EVERYWHERE, 0) == []
        answer(positions, second, FetchedData())
        assert asked(positions.fetches(EVERYWHERE, 0)) == {2: [(C, 0)]}

    def test_next_fetch_does_not_wait_for_delivery(self):
        positions = made(A)
        fetch(positions, part(0, 5, size=99))
        fetch(positions, part(5, 5, size=99))
        assert positions.fetches(EVERYWHERE, 0) == []  # it has enough data
        positions.collect(None, yes)
        assert asked(positions.fetches(EVERYWHERE, 0)) == {1: [(A, 10)]}

    def test_leader_with_full_partition_gets_no_fetch(self):
        positions = made(A, B, C)
        one, two = positions.fetches(EVERYWHERE, 0)
        answer(positions, one, part(0, 5, size=100), FetchedData())
        answer(positions, two, FetchedData())
        assert asked(positions.fetches(EVERYWHERE, 0)) == {2: [(C, 0)]}
        positions.pause([A])
        assert asked(positions.fetches(EVERYWHERE, 0)) == {1: [(B, 0)]}

    def test_served_partition_is_fetched_last(self):
        positions = made(A, B)
        fetch(positions, part(0, 5), FetchedData())
        positions.collect(None, yes)
        assert asked(positions.fetches(EVERYWHERE, 0)) == {1: [(B, 0), (A, 5)]}

    def test_buffered_and_requested_bytes_are_bounded(self):
        positions = made(A, B, C, buffer_bytes=250)
        one, two = positions.fetches(EVERYWHERE, 0)
        assert (one.bytes_max, two.bytes_max) == (200, 50)
        answer(positions, one, part(0, 5, size=90), part(0, 5, size=90))
        assert [f.bytes_max for f in positions.fetches(EVERYWHERE, 0)] == [20]

    def test_brokers_take_turns_when_one_fetch_takes_the_whole_buffer(self):
        positions = made(A, C, buffer_bytes=100)
        turns = []
        for _ in range(4):
            (one,) = positions.fetches(EVERYWHERE, 0)
            turns.append(one.broker_id)
            answer(positions, one, FetchedData())
        assert turns == [1, 2, 1, 2]

    def test_paused_partition_gives_up_buffer(self):
        positions = made(A, C, buffer_bytes=100)
        one, _ = (*positions.fetches({A: HERE}, 0), None)
        answer(positions, one, part(0, 5, size=100))
        assert positions.fetches(EVERYWHERE, 0) == []
        positions.pause([A])
        assert asked(positions.fetches(EVERYWHERE, 0)) == {2: [(C, 0)]}
        assert positions.buffered_bytes == 0
        positions.pause([A], paused=False)
        assert positions.position(A) == 0
        assert positions.collect(None, yes) == []

    @pytest.mark.parametrize(
        "late",
        [
            part(5, 5),
            FetchedData(),
            OutOfRange(),
            PermanentFailure(RuntimeError("at 5")),
        ],
        ids=["records", "no records", "out of range", "failure"],
    )
    def test_late_answer_after_the_buffer_was_given_up_skips_nothing(self, late):
        """It belongs to an offset behind the records that were given up."""
        positions = made(A, C, buffer_bytes=100)
        (first,) = positions.fetches({A: HERE}, 0)
        answer(positions, first, part(0, 5, size=60))
        (second,) = positions.fetches({A: HERE}, 0)
        assert (asked([second]), second.bytes_max) == ({1: [(A, 5)]}, 40)
        positions.pause([A])
        assert asked(positions.fetches(EVERYWHERE, 0)) == {2: [(C, 0)]}
        answer(positions, second, late)
        positions.pause([A], paused=False)
        assert positions.collect(None, yes) == []
        assert positions.pop_error() is None
        assert asked(positions.fetches({A: HERE}, 0)) == {1: [(A, 0)]}

    def test_fetch_retry_later_waits_until_time(self):
        positions = made(A)
        fetch(positions, RetryLater(30))
        assert positions.fetches(EVERYWHERE, 29) == []
        assert asked(positions.fetches(EVERYWHERE, 30)) == {1: [(A, 0)]}

    def test_leader_change_moves_fetch(self):
        positions = made(A)
        (old,) = positions.fetches({A: HERE}, 0)
        answer(positions, old, RetryLater(0))
        assert asked(positions.fetches({A: THERE}, 0)) == {2: [(A, 0)]}

    @pytest.mark.parametrize("change", ["seek", "reset", "disown", "own again"])
    def test_data_of_revoked_permit_is_dropped(self, change):
        positions = made(A)
        (one,) = positions.fetches(EVERYWHERE, 0)
        if change == "seek":
            positions.seek(A, 50)
        elif change == "reset":
            positions.reset([A], TO_LATEST)
        else:
            positions.remove_partitions([A])
        if change == "own again":
            positions.add_partitions([A])
        answer(positions, one, part(0, 5))
        assert one.partitions[0].permit.is_revoked
        assert positions.collect(None, yes) == []
        assert positions.buffered_bytes == 0
        if change == "seek":
            assert asked(positions.fetches(EVERYWHERE, 0)) == {1: [(A, 50)]}

    def test_seek_keeps_one_fetch_per_leader(self):
        positions = made(A, C)
        positions.fetches(EVERYWHERE, 0)
        positions.seek(A, 9)
        assert positions.fetches(EVERYWHERE, 0) == []  # one fetch to that leader is in flight


class TestHandingOut:
    def test_collect_advances_position(self):
        positions = made(A)
        fetch(positions, part(0, 5))
        assert positions.position(A) == 0
        assert stretches(positions.collect(None, yes)) == [(A, 0, 5)]
        assert positions.position(A) == 5

    def test_collect_limits_records_and_rotates_partitions(self):
        positions = made(A, B)
        fetch(positions, part(0, 5), part(0, 5))
        assert stretches(positions.collect(3, yes)) == [(A, 0, 3)]
        assert stretches(positions.collect(3, yes)) == [(B, 0, 3)]
        assert stretches(positions.collect(3, yes)) == [(A, 3, 5), (B, 3, 4)]
        assert stretches(positions.collect(3, yes)) == [(B, 4, 5)]

    def test_collect_skips_paused_partition(self):
        positions = made(A, B)
        fetch(positions, part(0, 5), part(0, 5))
        positions.pause([A])
        assert positions.paused == [A]
        assert stretches(positions.collect(None, yes)) == [(B, 0, 5)]
        assert not positions.is_ready(yes)
        positions.pause([A], paused=False)
        assert stretches(positions.collect(None, yes)) == [(A, 0, 5)]

    def test_collect_skips_undeliverable_partition(self):
        positions = made(A, B)
        fetch(positions, part(0, 5), part(0, 5))
        assert stretches(positions.collect(None, lambda p: p == B)) == [(B, 0, 5)]
        assert not positions.is_ready(lambda p: p == B)
        assert positions.is_ready(yes)

    def test_collect_skips_removed_partition(self):
        positions = made(A)
        fetch(positions, part(0, 5))
        positions.remove_partitions([A, B])
        assert positions.collect(None, yes) == []
        with pytest.raises(NotAssignedError, match="t-0 is not assigned"):
            positions.position(A)

    def test_chunk_without_records_advances_position(self):
        positions = made(A)
        fetch(positions, part(0, 5))
        fetch(positions, FetchedData(FetchedChunk(5, 7, 0, None)))
        fetch(positions, part(7, 2))
        assert stretches(positions.collect(None, yes)) == [(A, 0, 5), (A, 7, 9)]
        fetch(positions, FetchedData(FetchedChunk(9, 10, 0, None)))
        assert positions.position(A) == 10
        assert not positions.is_ready(yes)

    def test_put_back_range_is_collected_again(self):
        positions = made(A)
        fetch(positions, part(0, 5))
        (one,) = positions.collect(None, yes)
        positions.put_back(one, 3)
        assert positions.position(A) == 3
        (one,) = positions.collect(1, yes)
        positions.put_back(one, 3)
        assert stretches(positions.collect(None, yes)) == [(A, 3, 5)]
        assert asked(positions.fetches(EVERYWHERE, 0)) == {1: [(A, 5)]}

    def test_put_back_before_empty_offsets_is_collected_again(self):
        """A control batch follows: a loop that stops before the last record does not skip it."""
        positions = made(A)
        fetch(positions, part(0, 5))
        fetch(positions, FetchedData(FetchedChunk(5, 6, 0, None)))
        (one,) = positions.collect(None, yes, parts_max=1)
        assert positions.position(A) == 5
        positions.put_back(one, 3)
        assert stretches(positions.collect(None, yes)) == [(A, 3, 5)]
        assert positions.position(A) == 6

    def test_put_back_after_seek_is_dropped(self):
        positions = made(A)
        fetch(positions, part(0, 5))
        (one,) = positions.collect(None, yes)
        positions.seek(A, 2)
        positions.put_back(one, 3)
        assert positions.position(A) == 2
        assert positions.collect(None, yes) == []

    def test_put_back_after_buffer_drop_keeps_range(self):
        positions = made(A, C, buffer_bytes=100)
        (one,) = positions.fetches({A: HERE}, 0)
        answer(positions, one, part(0, 9, size=100))
        (taken,) = positions.collect(4, yes)
        positions.pause([A])
        fetch(positions, FetchedData())  # the other partition's fetch, which uses up the room
        positions.put_back(taken, 2)
        positions.pause([A], paused=False)
        assert stretches(positions.collect(None, yes)) == [(A, 2, 4)]
        fetches = positions.fetches({A: HERE}, 0)
        assert asked(fetches) == {1: [(A, 4)]}

    def test_permit_shows_pause_and_revocation(self):
        positions = made(A)
        lease = positions.state(A).permit
        positions.pause([A])
        assert lease.is_paused
        positions.seek(A, 0)
        assert lease.is_revoked
        assert positions.state(A).permit.is_paused


class TestOutOfRange:
    def test_out_of_range_uses_reset_policy(self, caplog):
        positions = made(A)
        fetch(positions, OutOfRange())
        assert positions.pop_error() is None
        assert not positions.is_ready(yes)
        assert positions.fetches(EVERYWHERE, 0) == []
        with caplog.at_level(logging.WARNING, "partage"):
            (lookup,) = positions.lookups(EVERYWHERE, 0)
        assert "t-0: position is out of range" in caplog.text
        assert lookup.reset.timestamp_at(0) == EARLIEST

    def test_out_of_range_delivers_earlier_chunks_first(self):
        positions = made(A)
        fetch(positions, part(0, 5))
        fetch(positions, OutOfRange())
        assert positions.lookups(EVERYWHERE, 0) == []
        (one,) = positions.collect(None, yes)
        one.permit.delivered_offset = 2  # a cursor is open
        assert positions.lookups(EVERYWHERE, 0) == []
        one.permit.delivered_offset = None
        assert len(positions.lookups(EVERYWHERE, 0)) == 1

    def test_out_of_range_without_policy_raises(self):
        positions = made(A, policy=None)
        fetch(positions, part(0, 5))
        fetch(positions, OutOfRange())
        assert positions.pop_error() is None  # earlier records first
        positions.collect(None, yes)
        error = positions.pop_error()
        assert isinstance(error, OffsetOutOfRangeError)
        assert (error.partition, error.offset) == (A, 5)
        assert asked(positions.fetches(EVERYWHERE, 0)) == {1: [(A, 5)]}

    @pytest.mark.parametrize("policy", [TO_EARLIEST, None])
    def test_recreated_topic_resets_or_raises(self, policy):
        positions = made(A, policy=policy)
        fetch(positions, part(0, 5))
        assert positions.fetches(ANEW, 0) == []
        positions.collect(None, yes)
        if policy is None:
            for _ in range(2):
                assert isinstance(positions.pop_error(), TopicRecreatedError)
                assert positions.fetches(ANEW, 0) == []
            positions.seek(A, 0)
        else:
            positions.lookup_succeeded(*positions.lookups(EVERYWHERE, 0), 0)
        assert asked(positions.fetches(ANEW, 0)) == {1: [(A, 0)]}

    def test_unconfirmed_position_is_looked_up_again_in_another_topic(self):
        """The metadata was old: the committed offset may belong to the new topic."""
        positions = made(A, at=None)
        positions.lookup_succeeded(*positions.lookups(EVERYWHERE, 0), 5)
        fetch(positions, RetryLater(0))
        assert positions.fetches(ANEW, 0) == []
        (lookup,) = positions.lookups(ANEW, 0)
        assert lookup.reset is None
        positions.lookup_succeeded(lookup, 5)
        assert asked(positions.fetches(ANEW, 0)) == {1: [(A, 5)]}
        assert positions.pop_error() is None

    def test_unconfirmed_reset_is_repeated_in_another_topic(self):
        positions = made(A, at=None, policy=None)
        positions.reset([A], TO_LATEST)
        positions.lookup_succeeded(*positions.lookups(EVERYWHERE, 0), 5)
        fetch(positions, RetryLater(0))
        assert positions.fetches(ANEW, 0) == []
        (lookup,) = positions.lookups(ANEW, 0)
        assert lookup.reset == TO_LATEST

    def test_unconfirmed_seek_is_kept_in_another_topic(self):
        positions = made(A, at=5)
        (pending,) = positions.fetches(EVERYWHERE, 0)
        assert positions.fetches(ANEW, 0) == []  # the former leader may still answer
        answer(positions, pending, RetryLater(0))
        assert asked(positions.fetches(ANEW, 0)) == {1: [(A, 5)]}

    def test_only_the_assigned_topic_is_fetched(self):
        """The coordinator may have assigned another topic of the same name to another member."""
        positions = made(at=None)
        positions.add_partitions([A], {A: HERE.topic_id})
        assert positions.topic_id(A) == HERE.topic_id
        positions.lookup_succeeded(*positions.lookups(EVERYWHERE, 0), 5)
        for now_ms in (0, 500):
            assert positions.fetches(ANEW, now_ms) == []
            assert positions.pop_outdated() == {A}
            assert positions.fetches(ANEW, now_ms + 499) == []
            assert positions.pop_outdated() == set()
        assert asked(positions.fetches(EVERYWHERE, 1000)) == {1: [(A, 5)]}
        assert positions.pop_error() is None

    def test_position_belongs_to_the_topic_that_was_fetched(self):
        positions = made(A)
        assert positions.topic_id(A) is None
        fetch(positions, part(0, 5))
        assert positions.topic_id(A) == HERE.topic_id
        assert not positions.is_topic_replaced(A, HERE.topic_id)
        positions.fetches(ANEW, 0)
        assert positions.topic_id(A) == HERE.topic_id  # until the records are delivered
        assert positions.is_topic_replaced(A, HERE.topic_id)
        assert not positions.is_topic_replaced(B, HERE.topic_id)


class TestAwaitingDelivery:
    """A delivery is followed by a check for work only if it may allow work."""

    def test_no_delivery_is_awaited_while_the_broker_has_a_fetch(self):
        positions = made(A, at=0)
        fetch(positions, part(0, 3))
        assert positions.fetches(EVERYWHERE, 0)
        assert not positions.awaits_delivery
        positions.collect(None, yes)
        assert positions.fetches(EVERYWHERE, 0) == []

    def test_partition_with_enough_records_awaits_delivery(self):
        positions = made(A, at=0)
        fetch(positions, part(0, 3, size=100))
        assert positions.fetches(EVERYWHERE, 0) == []
        assert positions.awaits_delivery
        positions.collect(None, yes)
        assert positions.fetches(EVERYWHERE, 0)
        assert not positions.awaits_delivery

    def test_full_buffer_awaits_delivery(self):
        positions = made(A, C, at=0, buffer_bytes=100)
        here = positions.fetches(EVERYWHERE, 0)
        assert asked(here) == {1: [(A, 0)]}
        assert positions.awaits_delivery, "the buffer has no room for a fetch from broker 2"
        answer(positions, here[0], part(0, 3, size=99))
        assert asked(positions.fetches(EVERYWHERE, 0)) == {2: [(C, 0)]}
        assert positions.awaits_delivery
        positions.collect(None, yes)
        assert asked(positions.fetches(EVERYWHERE, 0)) == {1: [(A, 3)]}
        assert not positions.awaits_delivery

    def test_end_of_a_record_loop_allows_a_reset_after_offsets_without_records(self):
        """A control batch arrived during the loop, and then its end was out of range."""
        positions = made(A, at=0)
        fetch(positions, part(0, 3))
        (lent,) = positions.collect(None, yes, parts_max=1)
        lent.permit.delivered_offset = lent.from_offset
        fetch(positions, FetchedData(FetchedChunk(3, 4, 0, None)))
        fetch(positions, OutOfRange())
        assert positions.awaits_delivery
        assert positions.lookups(EVERYWHERE, 0) == []
        lent.permit.delivered_offset = None
        positions.put_back(lent, 3)
        assert positions.lookups(EVERYWHERE, 0)

    def test_error_of_a_position_awaits_delivery_before_the_next_check(self):
        positions = made(A, B, at=0)
        fetch(positions, part(0, 3), part(0, 3))
        (one,) = positions.fetches(EVERYWHERE, 0)
        assert not positions.awaits_delivery
        positions.partition_answered(one.partitions[0], OutOfRange(), 0)
        assert positions.awaits_delivery, "the fetch ends only after its throttle time"

    def test_reset_after_the_last_records_awaits_delivery(self):
        positions = made(A, B, at=0)
        fetch(positions, part(0, 3), part(0, 3))
        fetch(positions, OutOfRange(), part(3, 3))
        assert asked(positions.fetches(EVERYWHERE, 0)) == {1: [(B, 6)]}
        assert positions.lookups(EVERYWHERE, 0) == []
        assert positions.awaits_delivery
        positions.collect(None, yes)
        assert positions.lookups(EVERYWHERE, 0)
        assert positions.fetches(EVERYWHERE, 0) == []
        assert not positions.awaits_delivery
