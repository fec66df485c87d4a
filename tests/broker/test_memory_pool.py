"""The memory pool of large requests."""

from __future__ import annotations

from random import Random

import pytest

from partage.broker.net.large_frame import LargeFrame
from partage.broker.net.memory_pool import MemoryPool

MB = 1 << 20


def test_frame_allocates_received_bytes_and_releases_all():
    budget = MemoryPool(100 * MB)
    large = LargeFrame(50 * MB, b"abc", budget, lambda: None)
    assert budget.available_bytes == 99 * MB
    while not large.is_complete:
        room = large.free_space()
        room[:] = bytes(len(room))
        count, room = len(room), None
        large.on_received(count)
    assert bytes(large.buffer[:3]) == b"abc"
    assert budget.available_bytes == 50 * MB
    budget.release(len(large.buffer))
    assert budget.available_bytes == 100 * MB


def test_cancelled_frame_releases_memory():
    budget = MemoryPool(10 * MB)
    large = LargeFrame(9 * MB, b"", budget, lambda: None)
    assert budget.available_bytes == 9 * MB
    large.cancel()
    assert budget.available_bytes == 10 * MB


def test_first_allocation_waits_until_whole_frame_fits():
    calls = []
    budget = MemoryPool(10 * MB)
    first = LargeFrame(8 * MB, b"", budget, lambda: calls.append(1))
    first.on_received(len(first.free_space()))  # 2 MB
    first.on_received(len(first.free_space()))  # 4 MB
    second = LargeFrame(7 * MB, b"", budget, lambda: calls.append(2))
    assert (first.is_waiting_for_memory, second.is_waiting_for_memory, budget.has_waiters) == (
        False,
        True,
        True,
    )
    assert len(second.free_space()) == 0
    first.cancel()
    assert (calls, second.is_waiting_for_memory, budget.has_waiters) == ([2], False, False)
    assert len(second.free_space()) == MB


def test_cancelled_wait_serves_next_waiter():
    calls = []
    budget = MemoryPool(10 * MB)
    holder = LargeFrame(4 * MB, bytes(4 * MB - 1), budget, lambda: calls.append(0))
    large = LargeFrame(9 * MB, b"", budget, lambda: calls.append(1))
    small = LargeFrame(2 * MB, b"", budget, lambda: calls.append(2))
    assert large.is_waiting_for_memory
    assert small.is_waiting_for_memory, "a request without memory waits behind other requests"
    large.cancel()
    assert calls == [2]
    holder.cancel()
    small.cancel()
    assert budget.available_bytes == 10 * MB


@pytest.mark.parametrize("seed", range(20))
def test_random_frames_all_complete(seed):
    """Frames of any size that arrive in any order; each is served once it is complete."""
    rng = Random(seed)
    limit = 10 * MB
    budget = MemoryPool(limit)
    frames = [LargeFrame(rng.randrange(1, limit), b"", budget, lambda: None) for _ in range(30)]
    while frames:
        assert 0 <= budget.available_bytes <= limit
        ready = [one for one in frames if not one.is_waiting_for_memory]
        assert ready, "they wait for each other"
        one = rng.choice(ready)
        if rng.random() < 0.05:
            frames.remove(one)
            one.cancel()
            continue
        one.on_received(len(one.free_space()))
        if one.is_complete:
            frames.remove(one)
            budget.release(len(one.buffer))
    assert budget.available_bytes == limit
