"""Retries with exponential back-off and jitter."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from partage.client.errors import ClientError
from partage.client.jitter import jittered
from partage.client.options import RetryPolicy

log = logging.getLogger(__name__)

#: A user who waits longer is told the reason.
_WARN_AFTER_S: Final = 5.0


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
        self._started_s = self._loop.time()
        self._deadline = self._started_s + self._policy.timeout_ms / 1000
        self._failures = 0
        self._has_warned = False

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
        wait_s = jittered(wait_ms / 1000)
        if is_last or not error.is_retriable or self._loop.time() + wait_s > self._deadline:
            raise error
        self._warn_once(error)
        await asyncio.sleep(wait_s)

    def _warn_once(self, error: ClientError) -> None:
        """Log a warning if the attempts have failed for some time."""
        failed_s = self._loop.time() - self._started_s
        if failed_s >= _WARN_AFTER_S and not self._has_warned:
            self._has_warned = True
            log.warning(
                "no success for %.0f s, retrying for at most %.0f s: error=%s",
                failed_s,
                self.remaining_s,
                error,
            )
