"""The parts of commands that run until a signal."""

from __future__ import annotations

import asyncio
import signal


class ForegroundError(Exception):
    """Raised if a coordinator or a member cannot start or continue; the message names the cause."""


def stop_signal() -> asyncio.Event:
    """Return an event that the first SIGTERM or SIGINT sets. The second one ends the process."""
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()

    def stop() -> None:
        stopping.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return stopping
