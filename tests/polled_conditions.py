"""Polling of conditions that no event reports, such as the state of another process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

PATIENCE_S = 60.0
#: A tenth of the time waited so far, within these limits.
_INTERVAL_MIN_S, _INTERVAL_MAX_S = 0.005, 0.1


def eventually(
    condition: Callable[[], Value],
    describe: Callable[[], object] = str,
    patience_s: float = PATIENCE_S,
    check: Callable[[], object] = bool,
) -> Value:
    """Poll a condition until it is true, and return its value.

    Args:
        condition: Called until its result is true.
        describe: Called for the message if it is still false after ``patience_s``.
        patience_s: The time limit, for a busy machine.
        check: Called while the condition is false; raises if it can no longer become true.
    """
    begin_s = time.monotonic()
    while not (value := condition()):
        check()
        waited_s = time.monotonic() - begin_s
        assert waited_s < patience_s, describe()
        time.sleep(min(max(waited_s / 10, _INTERVAL_MIN_S), _INTERVAL_MAX_S))
    return value


async def eventually_async(condition: Callable[[], object]) -> None:
    """Poll a condition until it is true, and let the event loop run in the meantime.

    Raises:
        TimeoutError: It is still false after `PATIENCE_S`.
    """
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(_INTERVAL_MIN_S)
