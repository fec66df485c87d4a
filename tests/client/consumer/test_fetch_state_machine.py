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


def asked(fetches):
    return {f.leader_id: [(w.lease.partition, w.offset) for w in f.wanted] for f in fetches}


def part(first, count, size=10):
    return FetchedData(
        FetchedChunk(first, first + count, size, f"{first}+{count}"), LogOffsets(0, 100, 100)
    )


def answer(positions, fetch, *answers):
    for wanted, said in zip(fetch.wanted, answers, strict=True):
        positions.answered(wanted, said)
    positions.done(fetch)


def fetch(positions, *answers, now_ms=0):
    """Answer the one fetch that is due."""
    (one,) = positions.fetches(EVERYWHERE, now_ms)
    answer(positions, one, *answers)


def stretches(taken):
    return [(t.lease.partition, t.from_offset, t.to_offset) for t in taken]


class TestBeginning:
    def test_a_committed_offset_is_asked_for_first(self):
        positions = made(A, at=None)
        (lookup,) = positions.lookups({}, 0)
        assert lookup.reset is None
        assert positions.lookups(EVERYWHERE, 0) == []  # a lookup is in flight
        assert positions.position(A) is None
        positions.lookup_succeeded(lookup, 7)
        assert positions.position(A) == 7
        assert asked(positions.fetches(EVERYWHERE, 0)) == {1: [(A, 7)]}

    def test_without_one_the_policy_says_where(self):
        positions = made(A, at=None, policy=ResetTarget(back_ms=1000))
        positions.lookup_succeeded(*positions.lookups({}, 0), None)
        assert positions.lookups({}, 0) == []  # the topic's leaders are unknown
        (lookup,) = positions.lookups(EVERYWHERE, 0)
        assert lookup.reset.timestamp_at(5000) == 4000
        positions.lookup_succeeded(lookup, 3)
        assert positions.position(A) == 3

    def test_without_a_policy_the_user_is_told_each_time(self):
        positions = made(A, at=None, policy=None)
        for _ in range(2):
            positions.lookup_succeeded(*positions.lookups(EVERYWHERE, 0), None)
            assert positions.is_ready(yes)
            assert isinstance(positions.pop_error(), NoOffsetForPartitionError)
            assert positions.pop_error() is None

    def test_a_lookup_that_fails_for_now_is_made_again(self):
        positions = made(A, at=None)
        (lookup,) = positions.lookups(EVERYWHERE, 0)
        positions.lookup_failed(lookup, RetryLater(50))
        assert positions.lookups(EVERYWHERE, 49) == []
        assert positions.retry_at_ms(0) == 50
        assert positions.retry_at_ms(50) is None
        assert len(positions.lookups(EVERYWHERE, 50)) == 1

    def test_a_lookup_that_fails_is_told_and_made_again(self):
        positions = made(A, at=None)
        error = OSError("no")
        positions.lookup_failed(*positions.lookups(EVERYWHERE, 0), PermanentFailure(error))
        assert positions.lookups(EVERYWHERE, 0) == []
        assert positions.pop_error() is error
        assert len(positions.lookups(EVERYWHERE, 0)) == 1

    def test_a_seek_makes_a_lookup_stale(self):
        positions = made(A, at=None)
        (lookup,) = positions.lookups(EVERYWHERE, 0)
        positions.seek(A, 5)
        positions.lookup_succeeded(lookup, 99)
        positions.lookup_failed(lookup, PermanentFailure(OSError()))
        assert positions.position(A) == 5
        assert positions.pop_error() is None


class TestFetching:
    def test_one_request_a_leader(self):
        positions = made(A, B, C)
        first, second = positions.fetches(EVERYWHERE, 0)
        assert asked([first, second]) == {1: [(A, 0), (B, 0)], 2: [(C, 0)]}
        assert positions.fetches(EVERYWHERE, 0) == []
        answer(positions, second, FetchedData())
        assert asked(positions.fetches(EVERYWHERE, 0)) == {2: [(C, 0)]}

    def test_the_next_request_does_not_wait_for_the_user(self):
        positions = made(A)
        fetch(positions, part(0, 5, size=99))
        fetch(positions, part(5, 5, size=99))
        assert positions.fetches(EVERYWHERE, 0) == []  # it has enough data
        positions.collect(None, yes)
        assert asked(positions.fetches(EVERYWHERE, 0)) == {1: [(A, 10)]}

    def test_a_leader_of_one_that_has_enough_is_left_alone(self):
        positions = made(A, B, C)
        one, two = positions.fetches(EVERYWHERE, 0)
        answer(positions, one, part(0, 5, size=100), FetchedData())
        answer(positions, two, FetchedData())
        assert asked(positions.fetches(EVERYWHERE, 0)) == {2: [(C, 0)]}
        positions.pause([A])
        assert asked(positions.fetches(EVERYWHERE, 0)) == {1: [(B, 0)]}

    def test_who_was_served_is_asked_for_last(self):
        positions = made(A, B)
        fetch(positions, part(0, 5), FetchedData())
        positions.collect(None, yes)
        assert asked(positions.fetches(EVERYWHERE, 0)) == {1: [(B, 0), (A, 5)]}

    def test_what_waits_and_what_is_asked_for_is_bounded(self):
        positions = made(A, B, C, buffer_bytes=250)
        one, two = positions.fetches(EVERYWHERE, 0)
        assert (one.bytes_max, two.bytes_max) == (200, 50)
        answer(positions, one, part(0, 5, size=90), part(0, 5, size=90))
        assert [f.bytes_max for f in positions.fetches(EVERYWHERE, 0)] == [20]

    def test_paused_partitions_give_up_their_room(self):
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

    def test_what_cannot_be_answered_now_is_asked_again_later(self):
        positions = made(A)
        fetch(positions, RetryLater(30))
        assert positions.fetches(EVERYWHERE, 29) == []
        assert asked(positions.fetches(EVERYWHERE, 30)) == {1: [(A, 0)]}

    def test_a_leader_that_moves(self):
        positions = made(A)
        (old,) = positions.fetches({A: HERE}, 0)
        answer(positions, old, RetryLater(0))
        assert asked(positions.fetches({A: THERE}, 0)) == {2: [(A, 0)]}

    @pytest.mark.parametrize("change", ["seek", "reset", "disown", "own again"])
    def test_what_is_on_its_way_when_the_user_goes_elsewhere_is_dropped(self, change):
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

    def test_a_seek_need_not_wait_for_the_request_that_is_out(self):
        positions = made(A, C)
        positions.fetches(EVERYWHERE, 0)
        positions.seek(A, 9)
        assert positions.fetches(EVERYWHERE, 0) == []  # one fetch to that leader is in flight


class TestHandingOut:
    def test_positions_move_with_what_is_taken(self):
        positions = made(A)
        fetch(positions, part(0, 5))
        assert positions.position(A) == 0
        assert stretches(positions.collect(None, yes)) == [(A, 0, 5)]
        assert positions.position(A) == 5

    def test_at_most_so_many_one_partition_after_the_other(self):
        positions = made(A, B)
        fetch(positions, part(0, 5), part(0, 5))
        assert stretches(positions.collect(3, yes)) == [(A, 0, 3)]
        assert stretches(positions.collect(3, yes)) == [(B, 0, 3)]
        assert stretches(positions.collect(3, yes)) == [(A, 3, 5), (B, 3, 4)]
        assert stretches(positions.collect(3, yes)) == [(B, 4, 5)]

    def test_nothing_of_what_is_paused(self):
        positions = made(A, B)
        fetch(positions, part(0, 5), part(0, 5))
        positions.pause([A])
        assert positions.paused == [A]
        assert stretches(positions.collect(None, yes)) == [(B, 0, 5)]
        assert not positions.is_ready(yes)
        positions.pause([A], paused=False)
        assert stretches(positions.collect(None, yes)) == [(A, 0, 5)]

    def test_nothing_that_the_owner_may_not(self):
        positions = made(A, B)
        fetch(positions, part(0, 5), part(0, 5))
        assert stretches(positions.collect(None, lambda p: p == B)) == [(B, 0, 5)]
        assert not positions.is_ready(lambda p: p == B)
        assert positions.is_ready(yes)

    def test_nothing_of_what_is_lost(self):
        positions = made(A)
        fetch(positions, part(0, 5))
        positions.remove_partitions([A, B])
        assert positions.collect(None, yes) == []
        with pytest.raises(NotAssignedError, match="t-0 is not assigned"):
            positions.position(A)

    def test_a_part_without_records_moves_the_position(self):
        positions = made(A)
        fetch(positions, part(0, 5))
        fetch(positions, FetchedData(FetchedChunk(5, 7, 0, None)))
        fetch(positions, part(7, 2))
        assert stretches(positions.collect(None, yes)) == [(A, 0, 5), (A, 7, 9)]
        fetch(positions, FetchedData(FetchedChunk(9, 10, 0, None)))
        assert positions.position(A) == 10
        assert not positions.is_ready(yes)

    def test_what_a_loop_did_not_get_to_comes_again(self):
        positions = made(A)
        fetch(positions, part(0, 5))
        (one,) = positions.collect(None, yes)
        positions.put_back(one, 3)
        assert positions.position(A) == 3
        (one,) = positions.collect(1, yes)
        positions.put_back(one, 3)
        assert stretches(positions.collect(None, yes)) == [(A, 3, 5)]
        assert asked(positions.fetches(EVERYWHERE, 0)) == {1: [(A, 5)]}

    def test_what_is_given_back_after_a_seek_is_dropped(self):
        positions = made(A)
        fetch(positions, part(0, 5))
        (one,) = positions.collect(None, yes)
        positions.seek(A, 2)
        positions.put_back(one, 3)
        assert positions.position(A) == 2
        assert positions.collect(None, yes) == []

    def test_what_is_given_back_after_its_rest_was_given_up(self):
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

    def test_a_loop_sees_that_its_records_are_no_longer_its_own(self):
        positions = made(A)
        lease = positions.state(A).permit
        positions.pause([A])
        assert lease.is_paused
        positions.seek(A, 0)
        assert lease.is_revoked
        assert positions.state(A).permit.is_paused


class TestOutOfRange:
    def test_the_policy_says_where_to_go_on(self, caplog):
        positions = made(A)
        fetch(positions, OutOfRange())
        assert positions.pop_error() is None
        assert not positions.is_ready(yes)
        assert positions.fetches(EVERYWHERE, 0) == []
        with caplog.at_level(logging.WARNING, "partage"):
            (lookup,) = positions.lookups(EVERYWHERE, 0)
        assert "t-0: position is out of range" in caplog.text
        assert lookup.reset.timestamp_at(0) == EARLIEST

    def test_what_was_fetched_before_is_handed_out_first(self):
        positions = made(A)
        fetch(positions, part(0, 5))
        fetch(positions, OutOfRange())
        assert positions.lookups(EVERYWHERE, 0) == []
        (one,) = positions.collect(None, yes)
        one.permit.delivered_offset = 2  # a cursor is open
        assert positions.lookups(EVERYWHERE, 0) == []
        one.permit.delivered_offset = None
        assert len(positions.lookups(EVERYWHERE, 0)) == 1

    def test_without_a_policy_the_user_is_told(self):
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
    def test_a_topic_that_is_made_anew(self, policy):
        positions = made(A, policy=policy)
        fetch(positions, part(0, 5))
        anew = {A: Placement(1, 0, b"u" * 16)}
        assert positions.fetches(anew, 0) == []
        positions.collect(None, yes)
        if policy is None:
            for _ in range(2):
                assert isinstance(positions.pop_error(), TopicRecreatedError)
                assert positions.fetches(anew, 0) == []
            positions.seek(A, 0)
        else:
            positions.lookup_succeeded(*positions.lookups(EVERYWHERE, 0), 0)
        assert asked(positions.fetches(anew, 0)) == {1: [(A, 0)]}
