"""Numbers over time in bounded memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from partage.web.lag_history import COARSE_MAX, COARSE_MS, FINE_MAX, LagHistory, Point, RingBuffer

SERIES = st.lists(st.tuples(st.integers(0, 50_000), st.integers(0, 2**62)), max_size=60)


@given(SERIES, st.integers(1, 20))
def test_ring_buffer_keeps_last_points(steps: list[tuple[int, int]], size: int) -> None:
    ring, all_of_them, at = RingBuffer(size), [], 0
    for step, value in steps:
        at += step
        ring.add(at, value)
        all_of_them.append(Point(at, value))
        assert ring.points() == all_of_them[-size:]
        assert len(ring) == len(ring.points())


def test_earlier_sample_is_ignored() -> None:
    lags = LagHistory()
    lags.add(10_000, 1)
    lags.add(9_999, 2)
    assert lags.since(0) == [Point(10_000, 1)]


def test_old_samples_are_per_minute() -> None:
    """Two hours with a sample per second, and a peak in the first minute."""
    lags = LagHistory()
    for second in range(7_200):
        lags.add(second * 1_000, 500 if second == 30 else 3)
    now = 7_199_000
    assert lags.since(now - 10_000) == [Point(now - n * 1_000, 3) for n in range(10, -1, -1)]
    all_of_it = lags.since(0)
    assert all_of_it[0] == Point(0, 500), "what was high stays to be seen"
    assert all_of_it == sorted(all_of_it)
    assert len(all_of_it) <= FINE_MAX + COARSE_MAX


def test_impossible_lags_are_limited() -> None:
    lags = LagHistory()
    lags.add(1, -5)
    lags.add(2, 2**70)
    assert [point.value for point in lags.since(0)] == [0, 2**63 - 1]


def test_lag_history_is_bounded() -> None:
    lags = LagHistory()
    for minute in range(3 * COARSE_MAX):
        lags.add(minute * COARSE_MS, minute)
    points = lags.since(0)
    assert len(points) == COARSE_MAX
    assert points[-1].value == 3 * COARSE_MAX - 1
    assert len(lags.latest(5)) == 5
