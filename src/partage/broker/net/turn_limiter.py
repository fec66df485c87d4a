"""Turns for the requests of rebalances, so that other clients do not wait behind thousands.

When a large group forms, each of its members sends JoinGroup and SyncGroup at about the same time.
A turn of the event loop handles a limited number of these requests, in the order of their arrival.
The others wait for later turns, and requests of other APIs overtake them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from partage.wire.apis.join_group import JOIN_GROUP
from partage.wire.apis.leave_group import LEAVE_GROUP
from partage.wire.apis.sync_group import SYNC_GROUP
from partage.wire.types import Buffer

#: The APIs that change the members of a group. They keep their order also between connections: a
#: client may send a LeaveGroup beside a JoinGroup that it no longer waits for.
_LIMITED_KEYS: Final = frozenset({JOIN_GROUP.key, SYNC_GROUP.key, LEAVE_GROUP.key})
#: Requests in one turn of the loop: two to three milliseconds of work.
_REQUESTS_PER_TURN: Final = 64


def is_limited(frame: Buffer) -> bool:
    """True if the request in a frame needs a turn."""
    return len(frame) >= 2 and not frame[0] and frame[1] in _LIMITED_KEYS


class TurnLimiter:
    """Grants turns to requests in the order in which they ask, a limited number in each loop turn.

    The limit is a number and not a time, so that simulated worlds are deterministic.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = _REQUESTS_PER_TURN
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def take_turn(self, on_turn: Callable[[], None]) -> bool:
        """Return True if a request may be handled now; otherwise ``on_turn`` is called later."""
        if not self._is_scheduled:
            self._schedule()
        if self._left and not self._waiting:
            self._left -= 1
            return True
        self._waiting.append(on_turn)
        return False

    def call_after_waiting(self, call: Callable[[], None]) -> None:
        """Call a function once the requests that wait now have had their turns."""
        if self._waiting:
            self._waiting.append(call)
        else:
            call()

    def _schedule(self) -> None:
        self._is_scheduled = True
        self._loop.call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_scheduled = False
        self._left = _REQUESTS_PER_TURN
        if self._waiting:
            self._schedule()
        while self._left and self._waiting:
            self._left -= 1
            self._waiting.popleft()()
