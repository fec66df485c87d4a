"""A count of the turns of an event loop."""

from __future__ import annotations

import asyncio


class TurnCounter:
    """Counts the turns of the running event loop from its creation on."""

    def __init__(self) -> None:
        self.turns = 0
        self._loop = asyncio.get_running_loop()
        self._count()

    def _count(self) -> None:
        self.turns += 1
        self._loop.call_soon(self._count)
