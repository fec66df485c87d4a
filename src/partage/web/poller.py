"""Polling of the cluster, once for all browsers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from partage.client.daemon_thread import run_in_daemon_thread
from partage.web.cluster_history import ClusterHistory, ClusterSnapshot

log = logging.getLogger(__name__)


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
            seen = await run_in_daemon_thread(source.poll, "partage-web-poll")
        except ClusterUnreachableError as error:
            watched.record_failure(_now_ms(), str(error))
        except Exception:  # The page must survive any error, and shows it.
            log.exception("failed to poll the cluster")
            watched.record_failure(_now_ms(), "internal error of this page; see its log")
        else:
            watched.add(seen)
        await sleep(poll_pause_s(interval_s, time.monotonic() - began_s))


def _now_ms() -> int:
    return int(time.time() * 1000)
