"""Requests that wait until the previous transaction of their producer is complete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from partage.transactions.events import AddPartitions

#: Clients begin the next transaction as soon as EndTxn is answered, which is before the markers are
#: written. A refusal with CONCURRENT_TRANSACTIONS costs them much more than the rest of the wait:
#: librdkafka repeats the request after 100 ms, and franz-go after its next metadata update, up to
#: 5 s later. Kafka waits too, but only in requests with ``transaction.version`` 2
#: (``add.partitions.to.txn.retry.backoff.max.ms``, 100 ms). The limit is for markers that cannot be
#: written now.
WAIT_MAX_S: Final = 0.5


class WaitingRequests:
    """Requests to add partitions, by transactional id, each with a time limit.

    Args:
        handle: handles a request whose time limit has passed.
    """

    def __init__(self, handle: Callable[[AddPartitions], None]) -> None:
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._requests: dict[str, dict[AddPartitions, asyncio.TimerHandle]] = {}

    def add(self, request: AddPartitions) -> None:
        """Let a request wait until `pop` returns it, or until its time limit."""
        waiting = self._requests.setdefault(request.transactional_id, {})
        waiting[request] = self._loop.call_later(WAIT_MAX_S, self._expire, request)

    def pop(self, transactional_id: str) -> list[AddPartitions]:
        """Remove and return the requests of a transactional id, in order."""
        waiting = self._requests.pop(transactional_id, {})
        for timer in waiting.values():
            timer.cancel()
        return list(waiting)

    def pop_all(self) -> list[AddPartitions]:
        """Remove and return all requests."""
        return [each for name in list(self._requests) for each in self.pop(name)]

    def _expire(self, request: AddPartitions) -> None:
        waiting = self._requests[request.transactional_id]
        del waiting[request]
        if not waiting:
            del self._requests[request.transactional_id]
        self._handle(request)
