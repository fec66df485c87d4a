"""A request too large for the buffer that all connections share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from partage.broker.net.memory_pool import MemoryPool
from partage.wire.types import Buffer

_GROWTH: Final = 1024 * 1024


class LargeFrame:
    """A frame on its way in, with a buffer of its own.

    The buffer grows with what has arrived, not with what is claimed, and each growth comes out of
    the server's budget. Where that has to be waited for, the frame ``is_held_up``, and ``go_on``
    is called when it is over. Once complete, the buffer's whole length is held of the budget, for
    whoever takes the buffer to give back.
    """

    def __init__(
        self, size: int, start: Buffer, budget: MemoryPool, go_on: Callable[[], None]
    ) -> None:
        self.buffer = bytearray(start)
        self.is_waiting_for_memory = False
        self._size = size
        self._filled = len(start)
        self._reserved_bytes = 0
        self._budget = budget
        self._on_resumed = go_on
        self._grow()

    @property
    def is_complete(self) -> bool:
        """Whether all of it has arrived."""
        return self._filled == self._size

    def free_space(self) -> memoryview:
        """Where the next bytes go."""
        return memoryview(self.buffer)[self._filled :]

    def on_received(self, count: int) -> None:
        """So many bytes have been put there."""
        self._filled += count
        if self._filled == len(self.buffer) < self._size:
            self._grow()

    def cancel(self) -> None:
        """The rest of it will not come."""
        self._budget.cancel_wait(self._on_granted)
        self._budget.release(self._reserved_bytes)

    def _grow(self) -> None:
        count = self._next_size - self._reserved_bytes
        lacking, is_first = self._size - self._reserved_bytes, not self._reserved_bytes
        if self._budget.try_allocate(count, lacking, self._on_granted, is_first=is_first):
            self._extend_buffer(count)
        else:
            self.is_waiting_for_memory = True

    @property
    def _next_size(self) -> int:
        return min(self._size, max(_GROWTH, 2 * self._filled))

    def _on_granted(self) -> None:
        self.is_waiting_for_memory = False
        self._extend_buffer(self._next_size - self._reserved_bytes)
        self._on_resumed()

    def _extend_buffer(self, count: int) -> None:
        self._reserved_bytes += count
        # A new one: the loop still holds its view of the old one, which pins that one's size.
        grown = bytearray(self._reserved_bytes)
        grown[: self._filled] = memoryview(self.buffer)[: self._filled]
        self.buffer = grown
