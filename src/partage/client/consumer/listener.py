"""Callbacks for partitions that a consumer gets and gives up (KIP-429)."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Awaitable, Collection
from typing import Final

from partage.member.outcome import ListenerCallback
from partage.model.topic_partition import TopicPartition

log = logging.getLogger(__name__)

_LONG_S: Final = 5.0


class RebalanceListener:
    """Base class of rebalance listeners.

    Override the methods you need, as functions or, for `partage.Consumer`, as coroutine functions.
    They are called during ``poll``, ``close`` and ``unsubscribe``: revoked first, then assigned.
    The partitions belong to this consumer while a method runs, so it may call ``commit``,
    ``position`` and ``seek``. If one raises, the assignment stays valid and the other methods are
    called; ``poll`` raises the first error and logs later ones.
    """

    def on_partitions_revoked(
        self, partitions: Collection[TopicPartition]
    ) -> Awaitable[None] | None:
        """Called before partitions are given up: commit offsets and release resources here.

        Under the cooperative protocol these are only the partitions that move to other members.
        Under the eager protocol these are all partitions. It is never called without partitions.
        """

    def on_partitions_assigned(
        self, partitions: Collection[TopicPartition]
    ) -> Awaitable[None] | None:
        """Called at the end of every rebalance with the new partitions, which may be none.

        It is not called for a rebalance without new partitions if another rebalance follows before
        the next poll.
        """

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """Called after partitions were lost; other members may own them, so a commit would fail.

        By default it calls ``on_partitions_revoked``, as in Kafka.
        """
        return self.on_partitions_revoked(partitions)

    def call(
        self, which: ListenerCallback, partitions: Collection[TopicPartition]
    ) -> Awaitable[None] | None:
        """Call the method for one kind of callback.

        Args:
            which: The kind of callback.
            partitions: The partitions that were revoked, assigned or lost.

        Returns:
            The awaitable of an asynchronous method, or None if the method has finished.
        """
        match which:
            case ListenerCallback.REVOKED:
                return self.on_partitions_revoked(partitions)
            case ListenerCallback.ASSIGNED:
                return self.on_partitions_assigned(partitions)
            case ListenerCallback.LOST:
                return self.on_partitions_lost(partitions)

    @property
    def is_asynchronous(self) -> bool:
        """True if any of the methods is a coroutine function."""
        calls = (
            self.on_partitions_revoked,
            self.on_partitions_assigned,
            self.on_partitions_lost,
        )
        return any(inspect.iscoroutinefunction(call) for call in calls)


def keep_first_error(first: Exception | None, error: Exception) -> Exception:
    """Return the error that a call raises after all its callbacks; log a later error.

    Args:
        first: The first error of an earlier callback in the same call; None if there is none.
        error: The new error.
    """
    if first is None:
        return error
    log.error(
        "a rebalance listener failed again; the call raises only its first error: "
        "first=%r error=%r",
        first,
        error,
        exc_info=error,
    )
    return first


class CallbackTimer:
    """A timer that logs a warning if a callback takes long, because the group may wait for it."""

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
