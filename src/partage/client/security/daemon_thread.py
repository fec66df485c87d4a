"""Work that would hold up the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def run_in_daemon_thread(work: Callable[[], T]) -> T:
    """What ``work`` returns or raises, in a daemon thread of its own.

    Not the loop's executor: its threads are waited for when the program ends, and a user's token
    provider may hang.
    """
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # from here on giving up does not disturb the thread

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)

    threading.Thread(target=run, name="partage-security", daemon=True).start()
    return await asyncio.wrap_future(outcome)
