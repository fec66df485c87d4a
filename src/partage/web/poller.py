"""Looking at the cluster now and then: once for all who look at the page."""

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
    """The cluster does not answer, or refuses; the text says why."""


class SnapshotSource(Protocol):
    """Where a look comes from."""

    def poll(self) -> ClusterSnapshot:
        """Ask the cluster; blocks, and is called from one thread at a time.

        Raises:
            Unreachable: it does not answer.
        """


def poll_pause_s(interval_s: float, took_s: float) -> float:
    """How long to wait after a look: to the next beat, and at least twice what it took, so that a
    large or slow cluster is busy with this page for a third of the time at most.
    """
    return max(interval_s - took_s, 2 * took_s)


async def poll_cluster(
    source: SnapshotSource,
    watched: ClusterHistory,
    interval_s: float,
    *,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Look until cancelled. ``watched`` is touched on the loop only."""
    while True:
        began_s = time.monotonic()
        try:
            seen = await _in_a_thread(source.poll)
        except ClusterUnreachableError as error:
            watched.record_failure(_now_ms(), str(error))
        except Exception:  # whatever it is, the page goes on and says so
            log.exception("failed to poll the cluster")
            watched.record_failure(_now_ms(), "internal error of this page; see its log")
        else:
            watched.add(seen)
        await sleep(poll_pause_s(interval_s, time.monotonic() - began_s))


async def _in_a_thread(ask: Callable[[], T]) -> T:
    """What it returns or raises. Unlike an executor's, the thread does not keep the process from
    ending while a cluster leaves a question open."""
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
            return  # the loop has ended meanwhile: nobody waits

    threading.Thread(target=run, name="partage-web-look", daemon=True).start()
    return await answer


def _now_ms() -> int:
    return int(time.time() * 1000)
