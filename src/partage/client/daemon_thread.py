"""Blocking work in daemon threads, so that it does not block the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def run_in_daemon_thread(work: Callable[[], T], name: str = "partage-security") -> T:
    """Run ``work`` in a new daemon thread and return its result.

    The loop's executor does not fit: Python waits for its threads at exit, and a user's token
    provider or an unreachable cluster may hang.

    Args:
        work: The function to run.
        name: The name of the thread.
    """
    outcome: Future[T] = Future()
    # From here on, cancelling the awaiting task does not affect the thread
    outcome.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await asyncio.wrap_future(outcome)
