"""The option ``--forbid-io``: tests of pure code and state machines do no I/O and never wait.

A test fails if it connects or binds a socket, starts a process or sleeps. A test may read and write
files, and it may use ``asyncio.run``: the socket pair inside an event loop is neither bound nor
connected.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import uvloop

TESTS = Path(__file__).parent
#: Audit events of the interpreter that mean I/O, with the reason shown to the user.
_EVENTS = {
    "socket.connect": "connects a socket",
    "socket.bind": "binds a socket",
    "socket.sendto": "sends a datagram",
    "socket.getaddrinfo": "looks up a host name",
    "subprocess.Popen": "starts a process",
    "os.fork": "starts a process",
    "os.forkpty": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.system": "starts a process",
}


class ForbiddenIoError(BaseException):
    """The test does I/O or sleeps. It derives from BaseException so that no handler hides it."""


class IoGuard:
    """A plugin that fails each test that does I/O or sleeps.

    It raises in the thread that does it, and reports it again at the end of the phase of the test:
    the code under test may run in a thread whose exceptions are not seen.
    """

    def __init__(self) -> None:
        self._is_active = False
        self._violations: list[str] = []
        self._lock = threading.Lock()
        sys.addaudithook(self._on_event)
        _replace_sleeps(self._on_sleep)
        _replace_uvloop(self._on_uvloop)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        return (yield from self._guard())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        return (yield from self._guard())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, object, object]:
        return (yield from self._guard())

    def _guard(self) -> Generator[None, object, object]:
        self._violations.clear()
        self._is_active = True
        failure: BaseException | None = None
        result: object = None
        try:
            result = yield
        except BaseException as error:
            failure = error
        finally:
            self._is_active = False
        if self._violations:
            pytest.fail("--forbid-io: " + "\n".join(self._violations), pytrace=False)
        if failure is not None:
            raise failure
        return result

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._is_active and (what := _EVENTS.get(event)):
            self._refuse(what)

    def _on_sleep(self, seconds: float) -> None:
        if self._is_active and seconds > 0:
            self._refuse(f"sleeps for {seconds} s")

    def _on_uvloop(self) -> None:
        if self._is_active:
            self._refuse("starts a uvloop event loop, whose I/O has no audit events")

    def _refuse(self, what: str) -> None:
        frames = traceback.extract_stack()
        place = next((f for f in reversed(frames) if _is_test_file(f.filename)), frames[-1])
        message = f"the test {what} ({place.filename}:{place.lineno})"
        with self._lock:
            self._violations.append(message)
        raise ForbiddenIoError(message)


def _is_test_file(filename: str) -> bool:
    path = Path(filename)
    return path.is_relative_to(TESTS) and path != Path(__file__)


def _replace_sleeps(on_sleep: Callable[[float], None]) -> None:
    """Call ``on_sleep`` before each sleep, except ``asyncio.sleep`` on a loop with virtual time."""
    sleep, async_sleep = time.sleep, asyncio.sleep

    def guarded_sleep(seconds: float) -> None:
        on_sleep(seconds)
        sleep(seconds)

    async def guarded_async_sleep(delay: float, result: Any = None) -> Any:
        if type(asyncio.get_running_loop()).__module__.split(".")[0] in ("asyncio", "uvloop"):
            on_sleep(delay)
        return await async_sleep(delay, result)

    time.sleep = guarded_sleep
    asyncio.sleep = guarded_async_sleep


def _replace_uvloop(on_loop: Callable[[], None]) -> None:
    """Call ``on_loop`` before each new uvloop event loop."""
    new_event_loop = uvloop.new_event_loop

    def guarded_loop() -> uvloop.Loop:
        on_loop()
        return new_event_loop()

    uvloop.new_event_loop = guarded_loop
