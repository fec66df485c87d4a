"""The budget of large requests, by itself."""

from __future__ import annotations

from random import Random

import pytest

from partage.broker.budget import Budget
from partage.broker.large_frame import LargeFrame

MB = 1 << 20


def test_a_frame_takes_what_has_arrived_and_gives_it_all_back():
    budget = Budget(100 * MB)
    large = LargeFrame(50 * MB, b"abc", budget, lambda: None)
    assert budget.left == 99 * MB
    while not large.is_complete:
        room = large.room()
        room[:] = bytes(len(room))
        count, room = len(room), None
        large.received(count)
    assert bytes(large.buffer[:3]) == b"abc"
    assert budget.left == 50 * MB
    budget.give(len(large.buffer))
    assert budget.left == 100 * MB


def test_what_is_given_up_is_free():
    budget = Budget(10 * MB)
    large = LargeFrame(9 * MB, b"", budget, lambda: None)
    assert budget.left == 9 * MB
    large.give_up()
    assert budget.left == 10 * MB


def test_who_begins_waits_until_the_whole_would_fit():
    calls = []
    budget = Budget(10 * MB)
    first = LargeFrame(8 * MB, b"", budget, lambda: calls.append(1))
    first.received(len(first.room()))  # 2 MB
    first.received(len(first.room()))  # 4 MB
    second = LargeFrame(7 * MB, b"", budget, lambda: calls.append(2))
    assert (first.is_held_up, second.is_held_up, budget.is_short) == (False, True, True)
    assert len(second.room()) == 0
    first.give_up()
    assert (calls, second.is_held_up, budget.is_short) == ([2], False, False)
    assert len(second.room()) == MB


def test_who_waits_and_goes_away_lets_others_through():
    calls = []
    budget = Budget(10 * MB)
    holder = LargeFrame(4 * MB, bytes(4 * MB - 1), budget, lambda: calls.append(0))
    large = LargeFrame(9 * MB, b"", budget, lambda: calls.append(1))
    small = LargeFrame(2 * MB, b"", budget, lambda: calls.append(2))
    assert large.is_held_up
    assert small.is_held_up, "who has nothing waits behind others"
    large.give_up()
    assert calls == [2]
    holder.give_up()
    small.give_up()
    assert budget.left == 10 * MB


@pytest.mark.parametrize("seed", range(20))
def test_all_come_through_in_the_end(seed):
    """Frames of any size that arrive in any order, each served as soon as it is whole."""
    rng = Random(seed)
    limit = 10 * MB
    budget = Budget(limit)
    frames = [LargeFrame(rng.randrange(1, limit), b"", budget, lambda: None) for _ in range(30)]
    while frames:
        assert 0 <= budget.left <= limit
        ready = [one for one in frames if not one.is_held_up]
        assert ready, "they wait for each other"
        one = rng.choice(ready)
        if rng.random() < 0.05:
            frames.remove(one)
            one.give_up()
            continue
        one.received(len(one.room()))
        if one.is_complete:
            frames.remove(one)
            budget.give(len(one.buffer))
    assert budget.left == limit
