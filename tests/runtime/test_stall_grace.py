"""Timers of a process that stalled or is busy."""

import pytest

from partage.runtime.stall_grace import StallGrace


@pytest.mark.parametrize(
    ("late_ms", "rests_until_ms"), [(200, None), (201, 1_402), (60_000, 71_000)]
)
def test_who_comes_too_late_rests_as_long_as_it_stood_still(late_ms, rests_until_ms):
    rest = StallGrace()
    assert rest.check_at_ms(1_000, 0) == 1_000
    began = rest.begin_if_stalled(1_000 + late_ms)
    assert began == (0 if rests_until_ms is None else late_ms)
    if rests_until_ms is not None:
        assert rest.check_at_ms(1_000, 1_000 + late_ms) == rests_until_ms


@pytest.mark.parametrize(("reading_ms", "again"), [(200, False), (201, True)])
def test_who_may_have_stood_still_while_it_read_reads_once_more_and_not_twice(reading_ms, again):
    rest = StallGrace()
    rest.check_at_ms(1_000, 0)
    assert not rest.begin_if_stalled(1_000)
    assert rest.must_read_again(1_000 + reading_ms) is again
    assert not rest.must_read_again(9_000)
    assert not rest.begin_if_stalled(1_000)
    assert rest.must_read_again(2_000), "of another timer"


def test_a_deadline_rests_once_or_for_a_longer_standstill():
    rest = StallGrace()
    rest.check_at_ms(1_000, 0)
    assert rest.begin_if_stalled(1_500) == 500
    assert rest.check_at_ms(1_000, 1_500) == 2_000
    assert not rest.begin_if_stalled(2_200)
    assert rest.fire_until_ms(2_200) == 2_200
    rest.check_at_ms(1_000, 1_500)
    assert rest.begin_if_stalled(2_501) == 501
    assert rest.check_at_ms(9_000, 2_501) == 9_000
    assert rest.begin_if_stalled(9_300) == 300, "another timer, long after"


def test_what_falls_due_in_a_second_standstill_has_a_rest_of_its_own():
    rest = StallGrace()
    rest.check_at_ms(1_000, 0)
    assert rest.begin_if_stalled(4_000) == 3_000
    assert rest.check_at_ms(1_000, 4_000) == 7_000
    assert not rest.begin_if_stalled(9_500), "the first deadline has had its rest"
    assert rest.fire_until_ms(9_500) == 4_000
    assert rest.check_at_ms(7_100, 9_500) == 12_000
    assert not rest.begin_if_stalled(12_100)
    assert rest.fire_until_ms(12_100) == 12_100


def test_while_timers_may_not_fire_is_a_standstill_too():
    rest = StallGrace()
    assert rest.check_at_ms(1_000, 0) == 1_000
    rest.suspend(1_000)
    assert rest.check_at_ms(1_000, 1_300) == 1_300, "it was asked in between"
    rest.suspend(1_300)
    rest.check_at_ms(1_000, 4_000)
    assert rest.begin_if_stalled(4_000) == 3_000
    assert rest.check_at_ms(1_000, 4_000) == 7_000
    assert not rest.begin_if_stalled(7_000)
    assert rest.fire_until_ms(7_000) == 7_000


def test_a_timer_that_was_held_and_is_gone_counts_no_more():
    rest = StallGrace()
    rest.check_at_ms(1_000, 0)
    rest.suspend(1_000)
    rest.check_at_ms(9_000, 2_000)
    assert not rest.begin_if_stalled(9_100)
    rest.check_at_ms(9_500, 9_100)
    rest.suspend(9_500)
    rest.check_at_ms(20_000, 9_600)
    rest.suspend(20_000)
    rest.check_at_ms(20_000, 21_000)
    assert rest.begin_if_stalled(21_000) == 1_000


@pytest.mark.parametrize("turn_ms", [190, 210, 300, 2_000])
def test_a_busy_process_fires_each_timer_within_three_of_its_turns(turn_ms):
    """Any number of timers, due at any time."""
    rest = StallGrace()
    now_ms, waiting = 0, list(range(1_000, 60_000, 70))
    while waiting:
        due_ms = rest.check_at_ms(waiting[0], now_ms)
        while now_ms < due_ms:
            now_ms += turn_ms
        if not rest.begin_if_stalled(now_ms):
            fired = [at_ms for at_ms in waiting if at_ms <= rest.fire_until_ms(now_ms)]
            assert fired
            assert now_ms - fired[0] <= 3 * turn_ms
            del waiting[: len(fired)]
