"""A request that is too large for the shared receive buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from partage.broker.net.memory_pool import MemoryPool
from partage.wire.types import Buffer

_GROWTH: Final = 1024 * 1024


class LargeFrame:
    """A frame that is being received into a separate buffer.

    The buffer grows with the bytes received, not with the claimed size, and takes its memory from
    the server's pool. While it must wait for memory, ``is_waiting_for_memory`` is True; ``go_on``
    is called afterwards. A complete frame holds memory of its full size, which the owner of the
    buffer must return.
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
        """True if all bytes have been received."""
        return self._filled == self._size

    def free_space(self) -> memoryview:
        """Return the free part of the buffer."""
        return memoryview(self.buffer)[self._filled :]

    def on_received(self, count: int) -> None:
        """Count bytes that were written to the free part."""
        self._filled += count
        if self._filled == len(self.buffer) < self._size:
            self._grow()

    def cancel(self) -> None:
        """Release the memory: the rest of the frame will not arrive."""
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
        # Not in place: the event loop still has a view of the old buffer, which prevents resizing
        # it.
        grown = bytearray(self._reserved_bytes)
        grown[: self._filled] = memoryview(self.buffer)[: self._filled]
        self.buffer = grown
