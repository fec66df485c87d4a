"""Reassembly of frames from chunks of any size."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.client.frame_reader import FrameReader, InvalidFrameSizeError


def feed(reader, stream, sizes):
    """Feed ``stream`` to the reader in chunks of at most these sizes, repeatedly."""
    frames, pos, turn = [], 0, 0
    while pos < len(stream):
        room = reader.free_buffer()  # A view that outlives `receive`, like that of an event loop
        count = min(len(room), sizes[turn % len(sizes)], len(stream) - pos)
        room[:count] = stream[pos : pos + count]
        frames += reader.receive(count)
        pos, turn = pos + count, turn + 1
    return frames


def stream_of(bodies):
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


@given(
    st.lists(st.binary(min_size=1, max_size=300), max_size=10),
    st.lists(st.integers(1, 50), min_size=1, max_size=5),
)
def test_frames_are_reassembled_from_any_chunks(bodies, sizes):
    assert feed(FrameReader(300), stream_of(bodies), sizes) == bodies


@pytest.mark.parametrize("size", [65_530, 65_536, 200_000, 17 << 20, 40 << 20])
def test_large_frames_between_small_ones(size):
    bodies = [b"first", b"x" * size, b"last"]
    assert feed(FrameReader(100 << 20), stream_of(bodies), [1 << 20]) == bodies


@pytest.mark.parametrize("size", [0, -1, -(2**31), 101, 2**31 - 1])
def test_invalid_frame_size_is_rejected(size):
    with pytest.raises(
        InvalidFrameSizeError, match=f"the frame size is {size} bytes; it must be 1 to 100"
    ):
        feed(FrameReader(100), struct.pack(">i", size) + b"x", [100])


def test_largest_frame_is_accepted():
    assert feed(FrameReader(100), stream_of([b"x" * 100]), [7]) == [b"x" * 100]


def test_memory_grows_with_received_bytes():
    reader = FrameReader(2**31 - 1)
    feed(reader, struct.pack(">i", 2**31 - 1) + b"x" * 1000, [1000])
    assert len(reader.free_buffer()) <= 16 << 20
