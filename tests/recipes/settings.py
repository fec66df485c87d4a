"""What tests of the recipes share."""

from __future__ import annotations

import asyncio

#: Members that notice soon.
QUICK = {
    "heartbeat_interval_ms": 30,
    "session_timeout_ms": 3_000,
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 50,
}


def run(work):
    """Run a test, not for ever."""

    async def limited():
        async with asyncio.timeout(60):
            return await work

    return asyncio.run(limited())


async def until(holds):
    """Wait for something that nobody tells of."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.005)
