"""Settings and helpers of the recipe tests."""

from __future__ import annotations

import asyncio

#: Short timeouts for members.
QUICK = {
    "heartbeat_interval_ms": 30,
    "session_timeout_ms": 3_000,
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 50,
}
#: The same for recipes that read. A waiting fetch delays the other requests of its connection.
QUICK_READER = {**QUICK, "fetch_max_wait_ms": 50}


def run(work):
    """Run a test with a time limit."""

    async def limited():
        async with asyncio.timeout(60):
            return await work

    return asyncio.run(limited())
