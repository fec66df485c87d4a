"""An event loop beside code that is not asynchronous."""

import asyncio
import threading

import pytest

from partage.client import LoopThread


@pytest.fixture
def loop():
    thread = LoopThread()
    yield thread
    thread.stop()


def test_work_runs_on_its_thread(loop):
    async def where():
        return threading.current_thread().name

    assert loop.call(where()) == "partage-client"


def test_what_it_raises_comes_back(loop):
    async def failing():
        raise ValueError("so")

    with pytest.raises(ValueError, match="so"):
        loop.call(failing())


def test_items_are_pulled_one_ahead(loop):
    begun = []

    async def source():
        for n in range(4):
            begun.append(n)
            yield n

    pulled = loop.pulled(source())
    assert next(pulled) == 0
    loop.call(asyncio.sleep(0))
    loop.call(asyncio.sleep(0))
    assert begun == [0, 1]
    assert list(pulled) == [1, 2, 3]


def test_an_error_comes_after_what_was_before_it(loop):
    async def source():
        yield 1
        raise ValueError("then")

    pulled = loop.pulled(source())
    assert next(pulled) == 1
    with pytest.raises(ValueError, match="then"):
        next(pulled)


def test_leaving_early_ends_the_source(loop):
    ended = threading.Event()

    async def source():
        try:
            yield 1
            await asyncio.sleep(3600)
            yield 2
        finally:
            ended.set()

    pulled = loop.pulled(source())
    assert next(pulled) == 1
    pulled.close()
    assert ended.wait(5)


def test_stopping_ends_what_runs():
    thread = LoopThread()
    ended = threading.Event()

    async def forever():
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    running = thread.submit(forever())
    thread.call(asyncio.sleep(0))
    thread.stop()
    assert ended.is_set()
    assert running.cancelled()
    thread.stop()
