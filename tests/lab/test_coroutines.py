"""Coroutines of simulated processes."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from typing import Any

import pytest

from partage.lab.environment.coroutines import SimFuture, SimTaskSet


class Process:
    """A process whose coroutine waits inside another one for a future that only that one has."""

    def __init__(self) -> None:
        self.tasks = SimTaskSet()
        self.moments = [SimFuture[None]()]
        self.inner = self.wait()
        self.spawn()

    def spawn(self) -> None:
        self.tasks.spawn(self.work(self.inner), lambda call: call())

    async def work(self, inner: Coroutine[Any, Any, None]) -> None:
        await inner

    async def wait(self) -> None:
        await self.moments.pop()


def test_inner_coroutine_can_end_first(monkeypatch: pytest.MonkeyPatch) -> None:
    # The garbage collector ends coroutines in any order.
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    process = Process()
    process.inner.close()
    assert not ignored


def test_task_set_keeps_unfinished_tasks_only() -> None:
    process = Process()
    for _ in range(3):
        moment = SimFuture[None]()
        process.inner, process.moments = process.wait(), [moment]
        process.spawn()
        moment.set_result(None)
    assert len(process.tasks._tasks) == 2, "the first task, and the last one that was added"
