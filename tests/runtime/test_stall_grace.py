"""Timers of a process that stalled or is busy."""

import pytest

from partage.runtime.stall_grace import StallGrace


@pytest.mark.parametrize(
    ("late_ms", "rests_until_ms"), [(200, None), (201, 1_402), (60_000, 71_000)]
)
def test_grace_is_as_long_as_stall(late_ms, rests_until_ms):
    rest = StallGrace()
    assert rest.check_at_ms(1_000, 0) == 1_000
    began = rest.begin_if_stalled(1_000 + late_ms)
    assert began == (0 if rests_until_ms is None else late_ms)
    if rests_until_ms is not None:
        assert rest.check_at_ms(1_000, 1_000 + late_ms) == rests_until_ms


@pytest.mark.parametrize(("reading_ms", "again"), [(200, False), (201, True)])
def test_stall_while_reading_reads_once_more(reading_ms, again):
    rest = StallGrace()
    rest.check_at_ms(1_000, 0)
    assert not rest.begin_if_stalled(1_000)
    assert rest.must_read_again(1_000 + reading_ms) is again
    assert not rest.must_read_again(9_000)
    assert not rest.begin_if_stalled(1_000)
    assert rest.must_read_again(2_000), "of another timer"


def test_deadline_has_one_grace_unless_longer_stall():
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


def test_second_stall_grants_later_deadlines_grace():
    rest = StallGrace()
    rest.check_at_ms(1_000, 0)
    assert rest.begin_if_stalled(4_000) == 3_000
    assert rest.check_at_ms(1_000, 4_000) == 7_000
    assert not rest.begin_if_stalled(9_500), "the first deadline has had its rest"
    assert rest.fire_until_ms(9_500) == 4_000
    assert rest.check_at_ms(7_100, 9_500) == 12_000
    assert not rest.begin_if_stalled(12_100)
    assert rest.fire_until_ms(12_100) == 12_100


def test_suspension_counts_as_stall():
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


def test_cancelled_suspended_timer_is_ignored():
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
def test_busy_process_fires_timers_within_three_turns(turn_ms):
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
