"""Polling for all browsers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from partage.web.cluster_history import ClusterHistory, ClusterSnapshot
from partage.web.poller import ClusterUnreachableError, poll_cluster, poll_pause_s

from .groups import group


@pytest.mark.parametrize(
    ("interval", "took", "pause"), [(2.0, 0.1, 1.9), (2.0, 0.9, 1.8), (2.0, 5.0, 10.0)]
)
def test_slow_cluster_is_polled_less(interval: float, took: float, pause: float) -> None:
    assert poll_pause_s(interval, took) == pytest.approx(pause)


class Script:
    """A source with scripted polls."""

    def __init__(self, *steps: Callable[[], ClusterSnapshot]) -> None:
        self._steps = list(steps)
        self.done = threading.Event()

    def poll(self) -> ClusterSnapshot:
        step = self._steps.pop(0)
        if not self._steps:
            self.done.set()
        return step()


def unreachable() -> ClusterSnapshot:
    raise ClusterUnreachableError("no broker responds")


def broken() -> ClusterSnapshot:
    raise KeyError("unexpected")


def well() -> ClusterSnapshot:
    return ClusterSnapshot(at_ms=5, took_ms=1, groups=[group("g")])


def watched_through(
    *steps: Callable[[], ClusterSnapshot],
) -> tuple[ClusterHistory, list[str | None], list[float]]:
    """Return the history after these polls, the failure after each, and the pauses."""
    watched, failures, pauses = ClusterHistory(), [], []

    async def run() -> None:
        over = asyncio.Event()

        async def sleep(seconds: float) -> None:
            failures.append(watched.failure)
            pauses.append(seconds)
            if len(pauses) == len(steps):
                over.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(poll_cluster(Script(*steps), watched, 2.0, sleep=sleep))
        await asyncio.wait_for(over.wait(), 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    return watched, failures, pauses


def test_poller_survives_errors(caplog: pytest.LogCaptureFixture) -> None:
    watched, failures, pauses = watched_through(unreachable, well, broken, well)
    assert failures[0] == "no broker responds"
    assert failures[1] is None
    assert failures[2] is not None
    assert "its log" in failures[2]
    assert "unexpected" in caplog.text
    assert failures[3] is None
    assert watched.poll_count == 4
    assert all(pause > 0 for pause in pauses)


def test_poller_ends_during_open_request() -> None:
    let_go = threading.Event()

    def never() -> ClusterSnapshot:
        let_go.wait(60)
        raise ClusterUnreachableError("too late")

    async def run() -> None:
        task = asyncio.create_task(poll_cluster(Script(never), ClusterHistory(), 2.0))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(run(), 30))
    let_go.set()
