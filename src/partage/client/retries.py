"""Retries with exponential back-off and jitter."""

from __future__ import annotations

import asyncio
import random

from partage.client.errors import ClientError
from partage.client.options import RetryPolicy

_JITTER = 0.2


class Retries:
    """The attempts of one operation::

    retries = Retries(policy)
    while True:
        try:
            return await attempt()
        except ClientError as error:
            await retries.wait_or_raise(error)
    """

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._loop = asyncio.get_running_loop()
        self.reset()

    def reset(self) -> None:
        """Start counting time and attempts again after a success."""
        self._deadline = self._loop.time() + self._policy.timeout_ms / 1000
        self._failures = 0

    @property
    def remaining_s(self) -> float:
        """Remaining time in seconds."""
        return max(0.0, self._deadline - self._loop.time())

    async def wait_or_raise(self, error: ClientError) -> None:
        """Wait before the next attempt; raise ``error`` if there is none."""
        policy = self._policy
        self._failures += 1
        is_last = policy.attempts_max is not None and self._failures >= policy.attempts_max
        wait_ms = min(policy.backoff_ms * 2 ** min(self._failures - 1, 20), policy.backoff_max_ms)
        wait_s = wait_ms / 1000 * random.uniform(1 - _JITTER, 1 + _JITTER)
        if is_last or not error.is_retriable or self._loop.time() + wait_s > self._deadline:
            raise error
        await asyncio.sleep(wait_s)
