"""The pool of large, short-lived buffers."""

from __future__ import annotations

import random

import pytest

from .conftest import NAMES

SIZES = (0, 1, 65_535, 65_536, 65_537, 1 << 20, (64 << 20) - 1, 64 << 20, (64 << 20) + 1)


@pytest.mark.parametrize("size", SIZES)
def test_buffer_has_requested_size_and_is_writable(decoder, size):
    buffer = decoder.pooled_buffer(size)
    assert len(buffer) == size
    assert not buffer.readonly
    buffer[:] = b"\xff" * size
    assert buffer[-3:] == b"\xff" * min(3, size)


def test_negative_size_is_refused(decoder):
    with pytest.raises(ValueError, match="negative"):
        decoder.pooled_buffer(-1)


def test_buffer_with_live_view_is_not_reused(decoder):
    """Buffers come and go while views outlive them. Each view keeps its bytes."""
    chance = random.Random(7)
    views = []
    for number in range(2_000):
        buffer = decoder.pooled_buffer(chance.choice((70_000, 130_000, 260_000)))
        at = chance.randrange(len(buffer) - 4)
        buffer[at : at + 4] = number.to_bytes(4, "big")
        views.append((number, buffer[at : at + 4]))
        del buffer
        while len(views) > 30:
            views.pop(chance.randrange(len(views)))
        assert all(view == number.to_bytes(4, "big") for number, view in views)


@pytest.mark.parametrize("decoder", {"native"} & set(NAMES), indirect=True)
def test_released_memory_is_reused(decoder):
    """The last released buffer is reused first."""
    buffer = decoder.pooled_buffer(1 << 20)
    buffer[100:106] = b"before"
    del buffer
    assert decoder.pooled_buffer((1 << 20) - 5)[100:106] == b"before"
