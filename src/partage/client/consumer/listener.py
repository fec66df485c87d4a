"""Whom a consumer tells what it gets and what it gives up (KIP-429)."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Awaitable, Collection
from typing import Final

from partage.client.metadata import TopicPartition
from partage.member.outcome import ListenerCallback

log = logging.getLogger(__name__)

_LONG_S: Final = 5.0


class RebalanceListener:
    """The base of listeners; override what you need, as functions or, for
    `partage.Consumer`, as coroutine functions.

    They are called from within `poll`, and from `close` and `unsubscribe`: revoked first, then
    assigned. While one runs, the partitions are still (revoked) or already (assigned) this
    consumer's, so ``commit``, ``position`` and ``seek`` may be used. Whatever one raises, the
    assignment stands and the other calls are made; the first error comes out of ``poll``.
    """

    def on_partitions_revoked(
        self, partitions: Collection[TopicPartition]
    ) -> Awaitable[None] | None:
        """About to be given up: the time to commit and to let go. Never called for nothing.

        Under the cooperative protocol these are the partitions that go elsewhere; what stays is
        consumed on. Under the eager one they are all there are.
        """

    def on_partitions_assigned(
        self, partitions: Collection[TopicPartition]
    ) -> Awaitable[None] | None:
        """New here; called at the end of every rebalance, with nothing if nothing is new.

        A rebalance that brings nothing and is followed by another before the next poll is passed
        over.
        """

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """Gone already, perhaps to somebody who reads them now: there is nothing to commit.

        By default the same as ``on_partitions_revoked``, as in Kafka.
        """
        return self.on_partitions_revoked(partitions)

    def call(
        self, which: ListenerCallback, partitions: Collection[TopicPartition]
    ) -> Awaitable[None] | None:
        """Make one of the calls."""
        match which:
            case ListenerCallback.REVOKED:
                return self.on_partitions_revoked(partitions)
            case ListenerCallback.ASSIGNED:
                return self.on_partitions_assigned(partitions)
            case ListenerCallback.LOST:
                return self.on_partitions_lost(partitions)

    @property
    def is_asynchronous(self) -> bool:
        """Whether any of the calls is a coroutine function."""
        calls = (
            self.on_partitions_revoked,
            self.on_partitions_assigned,
            self.on_partitions_lost,
        )
        return any(inspect.iscoroutinefunction(call) for call in calls)


class Stopwatch:
    """Reports a callback that took long: the group may have waited for it."""

    def __init__(self, call: ListenerCallback) -> None:
        self._call = call

    def __enter__(self) -> None:
        self._began_s = time.monotonic()

    def __exit__(self, *raised: object) -> None:
        took_s = time.monotonic() - self._began_s
        if took_s > _LONG_S:
            log.warning(
                "on_partitions_%s took %.1f s: rebalances wait for it, and a member that takes "
                "longer than max_poll_interval_ms loses its partitions",
                self._call,
                took_s,
            )
