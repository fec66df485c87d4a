"""A queue of many deadlines that are postponed often.

Postponing a timer writes one dictionary entry; its heap entry is updated when the old deadline has
come. So a heartbeat costs no heap operation.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

_SLACK = 1024


class TimerQueue(Generic[Key]):
    """Deadlines in ms, one for each key.

    Attributes:
        is_wake_changed: True if `wake_at_ms` may have become earlier. A shell that schedules the
            wake-up sets it to False.
    """

    def __init__(self) -> None:
        self._deadlines: dict[Key, int] = {}
        self._queued: dict[Key, int] = {}  # the heap entry that is valid
        self._heap: list[tuple[int, int, Key]] = []
        self._serial = 0  # keeps entries of the same time in order
        self.is_wake_changed = True

    @property
    def armed(self) -> Mapping[Key, int]:
        """The deadlines of all armed timers."""
        return self._deadlines

    @property
    def queue_length(self) -> int:
        """Number of entries in the heap, including those of cancelled timers."""
        return len(self._heap)

    def set(self, key: Key, deadline_ms: int | None) -> None:
        """Arm a timer, replacing its deadline, or cancel it if the deadline is None."""
        if deadline_ms is None:
            self._deadlines.pop(key, None)
            return
        armed_ms = self._deadlines.get(key)
        self._deadlines[key] = deadline_ms
        if armed_ms is not None and deadline_ms >= armed_ms:
            return  # the heap entry of an armed timer is not after its deadline
        queued_ms = self._queued.get(key)
        if queued_ms is None or deadline_ms < queued_ms:
            self._queue(key, deadline_ms)

    def _queue(self, key: Key, at_ms: int) -> None:
        self._queued[key] = at_ms
        self.is_wake_changed = True
        self._serial += 1
        heapq.heappush(self._heap, (at_ms, self._serial, key))
        if len(self._heap) > 4 * len(self._deadlines) + _SLACK:
            self._rebuild()

    def _rebuild(self) -> None:
        """Rebuild the heap without the entries of cancelled timers."""
        self._heap = [
            (deadline_ms, serial, key)
            for serial, (key, deadline_ms) in enumerate(self._deadlines.items())
        ]
        self._queued = dict(self._deadlines)
        self._serial = len(self._heap)
        heapq.heapify(self._heap)

    def wake_at_ms(self) -> int | None:
        """Return when to check again, at or before the next deadline; None if the heap is empty."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> Iterator[Key]:
        """Remove and yield the keys of due timers one by one, earliest first.

        The caller may arm or cancel timers between two of them, with immediate effect.
        """
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != at_ms:
                continue  # replaced by an earlier entry
            del self._queued[key]
            deadline_ms = self._deadlines.get(key)
            if deadline_ms is None:
                continue  # cancelled
            if deadline_ms > at_ms:  # postponed; other timers may be due before it
                self._queue(key, deadline_ms)
                continue
            del self._deadlines[key]
            yield key
