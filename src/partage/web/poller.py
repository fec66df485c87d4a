"""Polling of the cluster, once for all browsers."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from partage.web.cluster_history import ClusterHistory, ClusterSnapshot

log = logging.getLogger(__name__)

T = TypeVar("T")


class ClusterUnreachableError(Exception):
    """Raised if the cluster does not respond or refuses a request; the message says why."""


class SnapshotSource(Protocol):
    """Source of snapshots of a cluster."""

    def poll(self) -> ClusterSnapshot:
        """Return a snapshot. Blocks, and is called from one thread at a time.

        Raises:
            ClusterUnreachableError: The cluster does not respond.
        """


def poll_pause_s(interval_s: float, took_s: float) -> float:
    """Return the pause after a poll, in seconds.

    The pause is at least twice the duration of the poll, so that a large or slow cluster is busy
    with this page for at most a third of the time.
    """
    return max(interval_s - took_s, 2 * took_s)


async def poll_cluster(
    source: SnapshotSource,
    watched: ClusterHistory,
    interval_s: float,
    *,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Poll until cancelled. ``watched`` is used only on the event loop."""
    while True:
        began_s = time.monotonic()
        try:
            seen = await _in_a_thread(source.poll)
        except ClusterUnreachableError as error:
            watched.record_failure(_now_ms(), str(error))
        except Exception:  # The page must survive any error, and shows it.
            log.exception("failed to poll the cluster")
            watched.record_failure(_now_ms(), "internal error of this page; see its log")
        else:
            watched.add(seen)
        await sleep(poll_pause_s(interval_s, time.monotonic() - began_s))


async def _in_a_thread(ask: Callable[[], T]) -> T:
    """Run a function in a daemon thread, and return its result or raise its error.

    Unlike an executor's thread, it does not delay the end of the process while a cluster does not
    respond.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if answer.cancelled():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type] # T may be None itself

    def run() -> None:
        result, error = None, None
        try:
            result = ask()
        except BaseException as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            return  # The loop has ended; the result is not needed.

    threading.Thread(target=run, name="partage-web-look", daemon=True).start()
    return await answer


def _now_ms() -> int:
    return int(time.time() * 1000)
