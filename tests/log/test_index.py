"""The index files and their entries."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.log.memory_disk import MemoryDisk
from partage.log.segments.index import OffsetIndex, TimeIndex
from partage.log.segments.segment_indexes import SegmentIndexes

from .property_settings import PROPERTY_SETTINGS

entries = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 2)), max_size=30)


def rising(numbers: list[int]) -> list[int]:
    return sorted(set(numbers))


@PROPERTY_SETTINGS
@given(entries)
def test_offset_index_has_kafka_format(given_entries: list[tuple[int, int]]) -> None:
    offsets = rising([offset for offset, _ in given_entries])
    positions = rising([position for _, position in given_entries])
    pairs = list(zip(offsets, positions, strict=False))
    index = OffsetIndex()
    for pair in pairs:
        index.add(*pair)
    content = index.encode()
    assert content == b"".join(struct.pack(">ii", *pair) for pair in pairs)
    decoded = OffsetIndex.decode(content, 2**31 - 1)
    assert decoded is not None
    assert decoded.encode() == content
    for offset, position in pairs:
        assert decoded.lookup(offset) == position
    assert decoded.lookup(-1) == 0


@PROPERTY_SETTINGS
@given(st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**31 - 1)), max_size=30))
def test_time_index_has_kafka_format(given_entries: list[tuple[int, int]]) -> None:
    times = rising([time for time, _ in given_entries])
    offsets = rising([offset for _, offset in given_entries])
    pairs = list(zip(times, offsets, strict=False))
    index = TimeIndex()
    for time_ms, offset in pairs:
        index.add(time_ms, offset)
        index.add(time_ms, offset + 1)  # not larger: no entry
    content = index.encode()
    assert content == b"".join(struct.pack(">qi", *pair) for pair in pairs)
    decoded = TimeIndex.decode(content)
    assert decoded is not None
    assert decoded.encode() == content
    for time_ms, offset in pairs:
        assert decoded.first_at_least(time_ms) == offset
    assert decoded.first_at_least(2**63 - 1) is None


@pytest.mark.parametrize(
    "content",
    [
        b"x",
        struct.pack(">4i", 1, 10, 1, 20),
        struct.pack(">4i", 1, 10, 2, 10),
        struct.pack(">2i", -1, 10),
        struct.pack(">2i", 1, -10),
        struct.pack(">2i", 1, 100),
        struct.pack(">4i", 1, 10, 0, 0),
    ],
)
def test_implausible_offset_index_is_rejected(content: bytes) -> None:
    assert OffsetIndex.decode(content, 100) is None


@pytest.mark.parametrize(
    "content",
    [b"x" * 11, struct.pack(">qiqi", 5, 1, 5, 2), struct.pack(">qiqi", 5, 1, 6, 1), bytes(24)],
)
def test_implausible_time_index_is_rejected(content: bytes) -> None:
    assert TimeIndex.decode(content) is None


@PROPERTY_SETTINGS
@given(
    st.lists(st.tuples(st.integers(61, 400), st.integers(1, 9), st.integers(-1, 50)), max_size=40),
    st.integers(0, 1000),
    st.integers(1, 7),
)
def test_indexes_do_not_depend_on_grouping_of_batches(
    batches: list[tuple[int, int, int]], interval_bytes: int, group: int
) -> None:
    positions, last_offsets, position, offset = list[int](), list[int](), 0, 99
    for size, records, _ in batches:
        positions.append(position)
        position += size
        offset += records
        last_offsets.append(offset)
    times = [time for *_, time in batches]
    single, grouped = SegmentIndexes(100, interval_bytes), SegmentIndexes(100, interval_bytes)
    for row in range(len(batches)):
        single.add_batches(positions[row], [0], [last_offsets[row]], [times[row]])
    for row in range(0, len(batches), group):
        rows, start = slice(row, row + group), positions[row]
        relative = [at - start for at in positions[rows]]
        grouped.add_batches(start, relative, last_offsets[rows], times[rows])
    assert single.offsets.encode() == grouped.offsets.encode()
    assert single.times.encode() == grouped.times.encode()
    assert single.max_timestamp == grouped.max_timestamp
    if times and max(times) >= 0:
        first = times.index(max(times))
        assert single.max_timestamp == (max(times), last_offsets[first])
    indexed = _entries(positions, last_offsets, interval_bytes)
    assert list(zip(single.offsets.offsets, single.offsets.positions, strict=True)) == indexed


def _entries(
    positions: list[int], last_offsets: list[int], interval_bytes: int
) -> list[tuple[int, int]]:
    """Compute entries by Kafka's rule: one when more bytes than the interval have passed."""
    found, latest = [], 0
    for position, last_offset in zip(positions, last_offsets, strict=True):
        if position - latest > interval_bytes:
            found.append((last_offset - 100, position))
            latest = position
    return found


def test_indexes_written_and_loaded_are_equal() -> None:
    disk = MemoryDisk()
    disk.make_directory("d")
    indexes = SegmentIndexes(7, 10)
    indexes.add_batches(0, [0, 70, 140], [9, 12, 20], [5, 9, 8])
    indexes.close()
    for write in indexes.writes("d"):
        disk.write(write.path, write.position, write.chunks)
    again = SegmentIndexes.load(disk, "d", 7, 210, 10)
    assert again is not None
    assert again.max_timestamp == (9, 12)
    assert again.end_offset == 21
    assert SegmentIndexes.load(disk, "d", 8, 210, 10) is None
    assert SegmentIndexes.load(disk, "d", 7, 140, 10) is None
