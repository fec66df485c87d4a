"""Memory for what is large and soon given back."""

from __future__ import annotations

import random

import pytest

from .conftest import NAMES

SIZES = (0, 1, 65_535, 65_536, 65_537, 1 << 20, (64 << 20) - 1, 64 << 20, (64 << 20) + 1)


@pytest.mark.parametrize("size", SIZES)
def test_it_is_as_large_as_asked_for_and_can_be_written(decoder, size):
    room = decoder.room(size)
    assert len(room) == size
    assert not room.readonly
    room[:] = b"\xff" * size
    assert room[-3:] == b"\xff" * min(3, size)


def test_there_is_none_of_fewer_bytes_than_none(decoder):
    with pytest.raises(ValueError, match=r"no room of -1 bytes|negative"):
        decoder.room(-1)


def test_nobody_writes_where_somebody_still_reads(decoder):
    """Rooms come and go, views outlive the names of what they are of: each keeps its bytes."""
    chance = random.Random(7)
    held = []
    for number in range(2_000):
        room = decoder.room(chance.choice((70_000, 130_000, 260_000)))
        at = chance.randrange(len(room) - 4)
        room[at : at + 4] = number.to_bytes(4, "big")
        held.append((number, room[at : at + 4]))
        del room
        while len(held) > 30:
            held.pop(chance.randrange(len(held)))
        assert all(view == number.to_bytes(4, "big") for number, view in held)


@pytest.mark.parametrize("decoder", {"native"} & set(NAMES), indirect=True)
def test_memory_is_used_again(decoder):
    """What was given back last comes first."""
    room = decoder.room(1 << 20)
    room[100:106] = b"before"
    del room
    assert decoder.room((1 << 20) - 5)[100:106] == b"before"
