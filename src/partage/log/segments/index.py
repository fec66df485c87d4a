"""The sparse offset and time indexes of a segment, in Kafka's file formats.

An entry is added for the first batch after every ``index.interval.bytes``. In memory they are
arrays of plain numbers: 8 bytes for each offset entry, 12 for each time entry.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import lt
from typing import Final

OFFSET_ENTRY_SIZE: Final = 8  # int32 relative offset, int32 position
TIME_ENTRY_SIZE: Final = 12  # int64 timestamp, int32 relative offset


class OffsetIndex:
    """Map from a batch's last offset, relative to the segment's base, to the batch's position."""

    def __init__(self) -> None:
        self.offsets = array("i")
        self.positions = array("i")

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, last_offset: int, position: int) -> None:
        """Add a batch by its relative last offset."""
        self.positions.append(position)  # before the offset, for a concurrent look-up in a thread
        self.offsets.append(last_offset)

    def lookup(self, offset: int) -> int:
        """Return a position from which a forward scan finds the relative ``offset``."""
        found = bisect_right(self.offsets, offset) - 1
        return self.positions[found] if found >= 0 else 0

    def encode(self) -> bytes:
        """Return the bytes of an ``.index`` file."""
        words = array("i", bytes(OFFSET_ENTRY_SIZE * len(self)))
        words[0::2] = self.offsets
        words[1::2] = self.positions
        return _flipped(words).tobytes()

    @classmethod
    def decode(cls, content: bytes, log_size: int) -> OffsetIndex | None:
        """Decode the index of a segment of ``log_size`` bytes; None if it is implausible."""
        if len(content) % OFFSET_ENTRY_SIZE:
            return None
        words = _flipped(array("i", content))
        index = cls()
        index.offsets, index.positions = words[0::2], words[1::2]
        return index if index._is_sane(log_size) else None

    def _is_sane(self, log_size: int) -> bool:
        if not self.offsets:
            return True
        return (
            _rises(self.offsets)
            and _rises(self.positions)
            and min(self.offsets[0], self.positions[0]) >= 0
            and self.positions[-1] < log_size
        )


class TimeIndex:
    """Map from the largest timestamp so far to the last offset of its batch."""

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("i")

    def __len__(self) -> int:
        return len(self.timestamps)

    def add(self, timestamp_ms: int, last_offset: int) -> None:
        """Add the largest timestamp so far; ignore one that is not larger than the last entry."""
        if not self.timestamps or timestamp_ms > self.timestamps[-1]:
            # Before the timestamp, for a concurrent look-up in a thread.
            self.offsets.append(last_offset)
            self.timestamps.append(timestamp_ms)

    def first_at_least(self, timestamp_ms: int) -> int | None:
        """Return the relative offset of the first entry with this timestamp or a later one."""
        found = bisect_left(self.timestamps, timestamp_ms)
        return self.offsets[found] if found < len(self.offsets) else None

    def encode(self) -> bytes:
        """Return the bytes of a ``.timeindex`` file."""
        halves = array("i", _flipped(self.timestamps).tobytes())
        words = array("i", bytes(TIME_ENTRY_SIZE * len(self)))
        words[0::3], words[1::3], words[2::3] = halves[0::2], halves[1::2], _flipped(self.offsets)
        return words.tobytes()

    @classmethod
    def decode(cls, content: bytes) -> TimeIndex | None:
        """Decode a ``.timeindex`` file; None if it is implausible."""
        if len(content) % TIME_ENTRY_SIZE:
            return None
        words = array("i", content)
        halves = array("i", bytes(8 * (len(words) // 3)))
        halves[0::2], halves[1::2] = words[0::3], words[1::3]
        index = cls()
        index.timestamps = _flipped(array("q", halves.tobytes()))
        index.offsets = _flipped(words[2::3])
        return index if index._is_sane() else None

    def _is_sane(self) -> bool:
        rising = _rises(self.timestamps) and _rises(self.offsets)
        return rising and (not self.offsets or self.offsets[0] >= 0)


def _rises(numbers: Sequence[int]) -> bool:
    return all(map(lt, numbers, numbers[1:]))


def _flipped(numbers: array[int]) -> array[int]:
    """Convert numbers between the machine's byte order and the big-endian order of files."""
    copy = numbers[:]
    if sys.byteorder == "little":
        copy.byteswap()
    return copy
