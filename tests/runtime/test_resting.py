"""Timers of a process that stood still, or has much to do."""

import pytest

from partage.runtime.resting import Rest


@pytest.mark.parametrize(
    ("late_ms", "rests_until_ms"), [(200, None), (201, 1_402), (60_000, 71_000)]
)
def test_who_comes_too_late_rests_as_long_as_it_stood_still(late_ms, rests_until_ms):
    rest = Rest()
    assert rest.due_ms(1_000, 0) == 1_000
    began = rest.begins(1_000 + late_ms)
    assert began == (0 if rests_until_ms is None else late_ms)
    if rests_until_ms is not None:
        assert rest.due_ms(1_000, 1_000 + late_ms) == rests_until_ms


@pytest.mark.parametrize(("reading_ms", "again"), [(200, False), (201, True)])
def test_who_may_have_stood_still_while_it_read_reads_once_more_and_not_twice(reading_ms, again):
    rest = Rest()
    rest.due_ms(1_000, 0)
    assert not rest.begins(1_000)
    assert rest.reads_again(1_000 + reading_ms) is again
    assert not rest.reads_again(9_000)
    assert not rest.begins(1_000)
    assert rest.reads_again(2_000), "of another timer"


def test_after_a_rest_only_a_longer_standstill_makes_it_rest_again():
    rest = Rest()
    rest.due_ms(1_000, 0)
    assert rest.begins(1_500) == 500
    assert rest.due_ms(1_000, 1_500) == 2_000
    assert not rest.begins(2_500)
    rest.due_ms(1_000, 1_500)
    assert rest.begins(2_501) == 501
    assert rest.due_ms(9_000, 2_501) == 9_000
    assert rest.begins(9_300) == 300, "another timer, long after"
