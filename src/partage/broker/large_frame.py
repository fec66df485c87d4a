"""A request too large for the buffer that all connections share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from partage.broker.budget import Budget
from partage.wire.types import Buffer

_GROWTH: Final = 1024 * 1024


class LargeFrame:
    """A frame on its way in, with a buffer of its own.

    The buffer grows with what has arrived, not with what is claimed, and each growth comes out of
    the server's budget. Where that has to be waited for, the frame ``is_held_up``, and ``go_on``
    is called when it is over. Once complete, the buffer's whole length is held of the budget, for
    whoever takes the buffer to give back.
    """

    def __init__(self, size: int, start: Buffer, budget: Budget, go_on: Callable[[], None]) -> None:
        self.buffer = bytearray(start)
        self.is_held_up = False
        self._size = size
        self._filled = len(start)
        self._held = 0
        self._budget = budget
        self._go_on = go_on
        self._grow()

    @property
    def is_complete(self) -> bool:
        """Whether all of it has arrived."""
        return self._filled == self._size

    def room(self) -> memoryview:
        """Where the next bytes go."""
        return memoryview(self.buffer)[self._filled :]

    def received(self, count: int) -> None:
        """So many bytes have been put there."""
        self._filled += count
        if self._filled == len(self.buffer) < self._size:
            self._grow()

    def give_up(self) -> None:
        """The rest of it will not come."""
        self._budget.forget(self._granted)
        self._budget.give(self._held)

    def _grow(self) -> None:
        count = self._next_size - self._held
        lacking, is_first = self._size - self._held, not self._held
        if self._budget.take(count, lacking, self._granted, is_first=is_first):
            self._use(count)
        else:
            self.is_held_up = True

    @property
    def _next_size(self) -> int:
        return min(self._size, max(_GROWTH, 2 * self._filled))

    def _granted(self) -> None:
        self.is_held_up = False
        self._use(self._next_size - self._held)
        self._go_on()

    def _use(self, count: int) -> None:
        self._held += count
        # A new one: the loop still holds its view of the old one, which pins that one's size.
        grown = bytearray(self._held)
        grown[: self._filled] = memoryview(self.buffer)[: self._filled]
        self.buffer = grown
