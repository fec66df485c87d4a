"""Cancelled callers of work that fails later, with `asyncio.shield` as in Python 3.14."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from polled_conditions import PATIENCE_S


def shield(inner: Awaitable[Any]) -> asyncio.Future[Any]:
    """Shield a future as Python 3.14 does.

    After a cancellation, it logs the error of the inner future, even if the error is retrieved.
    """
    loop = asyncio.get_running_loop()
    shielded = asyncio.ensure_future(inner)
    outer: asyncio.Future[Any] = loop.create_future()

    def pass_on(done: asyncio.Future[Any]) -> None:
        if done.cancelled():
            outer.cancel()
        elif (error := done.exception()) is not None:
            outer.set_exception(error)
        else:
            outer.set_result(done.result())

    def log_error(done: asyncio.Future[Any]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            message = f"{type(error).__name__} exception in shielded future"
            loop.call_exception_handler({"message": message, "exception": error, "future": done})

    def on_outer(_: asyncio.Future[Any]) -> None:
        if not shielded.done():
            shielded.remove_done_callback(pass_on)
            shielded.add_done_callback(log_error)

    shielded.add_done_callback(pass_on)
    outer.add_done_callback(on_outer)
    return outer


class FailingWork:
    """Work in a thread that fails after its caller was cancelled."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_fail = threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.may_fail.wait(PATIENCE_S)
        raise LookupError("failed at the end")

    def cancel_caller(
        self, monkeypatch: pytest.MonkeyPatch, call: Callable[[], Coroutine[Any, Any, object]]
    ) -> tuple[BaseException | None, list[str]]:
        """Cancel a caller of this work.

        Returns:
            The exception with which the caller ends, and what the event loop reports.
        """
        monkeypatch.setattr(asyncio, "shield", shield)
        reported: list[str] = []

        async def main() -> BaseException | None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: reported.append(context["message"]))
            caller = asyncio.create_task(call())
            assert await asyncio.to_thread(self.begun.wait, PATIENCE_S)
            caller.cancel()
            self.may_fail.set()
            (ended,) = await asyncio.gather(caller, return_exceptions=True)
            assert isinstance(ended, BaseException)
            return ended

        ended = asyncio.run(main())
        gc.collect()
        return ended, reported
