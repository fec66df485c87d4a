"""An event loop in a thread, for code without asyncio."""

import asyncio
import contextlib
import signal
import threading
import weakref

import pytest

from partage.client import LoopThread, loop_thread
from partage.client.loop_thread import CalledFromLoopError


@pytest.fixture
def loop():
    thread = LoopThread()
    yield thread
    thread.stop()


def test_work_runs_on_loop_thread(loop):
    async def where():
        return threading.current_thread().name

    assert loop.call(where()) == "partage-client"


def test_call_raises_exception_of_work(loop):
    async def failing():
        raise ValueError("so")

    with pytest.raises(ValueError, match="so"):
        loop.call(failing())


@pytest.mark.timeout(600)
def test_signal_handler_may_submit_during_submit(loop, monkeypatch):
    """For example Spark's SIGTERM handler, which must leave the group at any moment."""
    begin, done = asyncio.run_coroutine_threadsafe, []

    async def work(what):
        done.append(what)

    def interrupted(coroutine, event_loop):
        monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", begin)
        signal.raise_signal(signal.SIGUSR1)
        return begin(coroutine, event_loop)

    before = signal.signal(signal.SIGUSR1, lambda *_: loop.submit(work("handler")))
    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
    try:
        loop.call(work("main"))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert done == ["handler", "main"]


def test_iterate_prefetches_one_item(loop):
    begun = []

    async def source():
        for n in range(4):
            begun.append(n)
            yield n

    pulled = loop.iterate(source())
    assert next(pulled) == 0
    loop.call(asyncio.sleep(0))
    loop.call(asyncio.sleep(0))
    assert begun == [0, 1]
    assert list(pulled) == [1, 2, 3]


def test_iterate_raises_after_earlier_items(loop):
    async def source():
        yield 1
        raise ValueError("then")

    pulled = loop.iterate(source())
    assert next(pulled) == 1
    with pytest.raises(ValueError, match="then"):
        next(pulled)


def test_iterate_closes_source_on_early_exit(loop):
    ended = threading.Event()

    async def source():
        try:
            yield 1
            await asyncio.Event().wait()  # Blocks forever
            yield 2
        finally:
            ended.set()

    pulled = loop.iterate(source())
    assert next(pulled) == 1
    pulled.close()
    assert ended.wait(5)


def test_stop_cancels_running_work():
    thread = LoopThread()
    ended = threading.Event()

    async def forever():
        try:
            await asyncio.Event().wait()  # Blocks forever
        finally:
            ended.set()

    running = thread.submit(forever())
    thread.call(asyncio.sleep(0))
    thread.stop()
    assert ended.is_set()
    assert running.cancelled()
    thread.stop()


def test_stop_abandons_tasks_that_do_not_end(loop, monkeypatch, caplog):
    monkeypatch.setattr("partage.client.loop_thread._ENDING_S", 0.05)
    thread, begun = LoopThread(), threading.Event()

    async def stubborn():
        begun.set()
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()  # Blocks forever

    thread.submit(stubborn())
    assert begun.wait(30)
    thread.stop(30)
    assert not thread._thread.is_alive()
    assert "tasks did not end after cancellation" in caplog.text
    assert "stubborn" in caplog.text


def test_stop_abandons_blocked_thread(caplog):
    thread, begun, goes_on = LoopThread(), threading.Event(), threading.Event()

    async def blocking():
        begun.set()
        goes_on.wait(60)

    thread.submit(blocking())
    assert begun.wait(30)
    thread.stop(0.05)
    assert "partage-client did not stop" in caplog.text
    goes_on.set()
    thread.stop(30)
    assert not thread._thread.is_alive()


def test_stop_cancels_tasks_created_by_cancellation():
    thread, ended = LoopThread(), threading.Event()

    async def after():
        try:
            await asyncio.Event().wait()  # Blocks forever
        finally:
            ended.set()

    async def before():
        try:
            await asyncio.Event().wait()  # Blocks forever
        finally:
            before.next = asyncio.ensure_future(after())
            await asyncio.sleep(0)

    thread.submit(before())
    thread.call(asyncio.sleep(0))
    thread.stop()
    assert ended.is_set()


def test_submit_after_stop_raises(loop):
    loop.stop()
    with pytest.raises(RuntimeError, match="partage-client is stopped"):
        loop.call(asyncio.sleep(0))


def test_call_from_loop_thread_raises(loop):
    async def itself():
        loop.call(asyncio.sleep(0))

    with pytest.raises(CalledFromLoopError):
        loop.call(itself())


def test_stop_from_loop_thread():
    thread = LoopThread()

    async def ending():
        thread.stop()

    thread.submit(ending())
    thread._thread.join(30)
    assert not thread._thread.is_alive()


def test_exit_ends_threads_while_another_one_starts(monkeypatch):
    class Growing(weakref.WeakSet):
        """A set to which another thread adds an element during the first iteration."""

        def __iter__(self):
            if len(self) == 1:
                added.append(LoopThread())
                raise RuntimeError("Set changed size during iteration")
            return super().__iter__()

    added = []
    monkeypatch.setattr(loop_thread, "_RUNNING", Growing())
    added.append(LoopThread())
    loop_thread._end_at_exit()
    assert len(added) == 2
    for thread in added:
        with pytest.raises(RuntimeError, match="is stopped"):
            thread.submit(asyncio.sleep(0))
