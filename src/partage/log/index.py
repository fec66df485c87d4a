"""The sparse indexes of a segment, in Kafka's formats: where an offset is, where a time is.

An entry is made for the first batch after every ``index.interval.bytes``. In memory they are
arrays of plain numbers: 8 bytes an entry for offsets, 12 for times.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import lt
from typing import Final

OFFSET_ENTRY: Final = 8  # int32 relative offset, int32 position
TIME_ENTRY: Final = 12  # int64 timestamp, int32 relative offset


class OffsetIndex:
    """From a batch's last offset, relative to the segment's base, to the batch's position."""

    def __init__(self) -> None:
        self.offsets = array("i")
        self.positions = array("i")

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, last_offset: int, position: int) -> None:
        """Note a batch by its relative last offset."""
        self.positions.append(position)  # first, for a thread that looks up an offset meanwhile
        self.offsets.append(last_offset)

    def floor(self, offset: int) -> int:
        """A batch's position from which reading on meets the relative ``offset``."""
        found = bisect_right(self.offsets, offset) - 1
        return self.positions[found] if found >= 0 else 0

    def encode(self) -> bytes:
        """The bytes of an ``.index`` file."""
        words = array("i", bytes(OFFSET_ENTRY * len(self)))
        words[0::2] = self.offsets
        words[1::2] = self.positions
        return _flipped(words).tobytes()

    @classmethod
    def decode(cls, content: bytes, log_size: int) -> OffsetIndex | None:
        """The index of a segment of ``log_size`` bytes; `None` if it cannot be right."""
        if len(content) % OFFSET_ENTRY:
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
    """From the largest timestamp so far to the last offset of the batch that brought it."""

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("i")

    def __len__(self) -> int:
        return len(self.timestamps)

    def add(self, timestamp_ms: int, last_offset: int) -> None:
        """Note the largest time so far and its batch; one that is not larger adds nothing."""
        if not self.timestamps or timestamp_ms > self.timestamps[-1]:
            self.offsets.append(last_offset)  # first, as above
            self.timestamps.append(timestamp_ms)

    def first_at_least(self, timestamp_ms: int) -> int | None:
        """The relative offset of the first entry with this time or a later one."""
        found = bisect_left(self.timestamps, timestamp_ms)
        return self.offsets[found] if found < len(self.offsets) else None

    def encode(self) -> bytes:
        """The bytes of a ``.timeindex`` file."""
        halves = array("i", _flipped(self.timestamps).tobytes())
        words = array("i", bytes(TIME_ENTRY * len(self)))
        words[0::3], words[1::3], words[2::3] = halves[0::2], halves[1::2], _flipped(self.offsets)
        return words.tobytes()

    @classmethod
    def decode(cls, content: bytes) -> TimeIndex | None:
        """The index in a ``.timeindex`` file; `None` if it cannot be right."""
        if len(content) % TIME_ENTRY:
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
    """Between this machine's byte order and the files', which is big-endian."""
    copy = numbers[:]
    if sys.byteorder == "little":
        copy.byteswap()
    return copy
