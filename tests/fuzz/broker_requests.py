"""Requests to a broker in the same thread, through its connections but without sockets."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final

import psutil

from fuzz.targets import Faults, frames
from partage.broker.broker import Broker
from partage.broker.overrides import apply_overrides
from partage.log.memory_disk import MemoryDisk
from partage.model.settings import BrokerSettings
from partage.testing.broker import TEST_OVERRIDES

#: Cases after which a new broker starts. Successful requests leave topics and groups in the old
#: one.
_CASES_A_BROKER: Final = 2_000
_GROWTH_MAX_BYTES: Final = 512 << 20
# event loop turns after which a request without response must be waiting for something
_TURNS: Final = 4
_HANGS_AFTER_S: Final = 5.0


class BrokerRequests:
    """A broker that receives each case on a separate connection and must not change."""

    def __init__(self, loop: asyncio.AbstractEventLoop, faults: list[str]) -> None:
        self._loop = loop
        self._faults = faults
        self._cases = 0
        self._broker: Broker | None = None
        self._room = 0
        self._begin_bytes: int | None = None

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[BrokerRequests]:
        """Open a target with a separate event loop."""
        faults: list[str] = []
        watch, logger = Faults(faults), logging.getLogger("partage")
        logger.addHandler(watch)
        with asyncio.Runner() as runner:
            target = cls(runner.get_loop(), faults)
            runner.get_loop().set_exception_handler(target.fault)
            try:
                yield target
            finally:
                target.stop()
                logger.removeHandler(watch)

    def fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Record an exception that no task handles."""
        self._faults.append(repr(context))

    def try_one(self, rng: Random) -> list[str]:
        if self._cases % _CASES_A_BROKER == 0:
            self.stop()
            self._broker = self._loop.run_until_complete(_started())
            self._room = self._broker.server.resources.memory_pool.available_bytes
        self._cases += 1
        begin = time.process_time()  # CPU time, because the process may be suspended
        outcomes = self._loop.run_until_complete(self._all_exchanged(frames(rng)))
        took_s = time.process_time() - begin
        assert took_s < _HANGS_AFTER_S, f"it took {took_s:.1f} s"
        assert not self._faults, self._faults
        return outcomes

    async def _all_exchanged(self, contents: Iterable[bytes]) -> list[str]:
        return [await self._exchanged(content) for content in contents]

    async def _exchanged(self, content: bytes) -> str:
        assert self._broker is not None
        connection = self._broker.server.make_connection()
        transport = _Transport(connection.connection_lost)
        connection.connection_made(transport)
        while content and transport.is_open and transport.reads:
            room = connection.get_buffer(-1)
            size = min(len(room), len(content))
            room[:size] = content[:size]
            content = content[size:]
            connection.buffer_updated(size)
        for _ in range(_TURNS):
            if transport.is_answered or not transport.is_open:
                break
            await asyncio.sleep(0)
        outcome = "answered" if transport.is_answered else "waits"
        if not transport.is_open and not transport.is_answered:
            outcome = "closed"
        transport.lose()
        return outcome

    def stop(self) -> None:
        """Stop the broker; check that all connections and most memory were released."""
        if self._broker is None:
            return
        server = self._broker.server
        assert not server.connections, f"{len(server.connections)} connections are still open"
        assert not server.resources.unsent_bytes
        self._loop.run_until_complete(self._broker.stop())
        assert server.resources.memory_pool.available_bytes == self._room, (
            "the memory budget of a request was not released"
        )
        self._broker = None
        grown_to = psutil.Process().memory_info().rss
        if self._begin_bytes is None:
            # after all codecs are compiled and memory pools are filled
            self._begin_bytes = grown_to
        growth = grown_to - self._begin_bytes
        assert growth < _GROWTH_MAX_BYTES, f"the process has grown by {growth >> 20} MB"


async def _started() -> Broker:
    settings = apply_overrides(BrokerSettings(), TEST_OVERRIDES)
    broker = await Broker.start(MemoryDisk(), settings, host="127.0.0.1", port=0)
    await broker.log_manager.create("topic-1", 2, {})
    return broker


class _Transport(asyncio.Transport):
    """Discards responses."""

    def __init__(self, lost: Callable[[Exception | None], None]) -> None:
        super().__init__()
        self.is_open = True
        self.reads = True
        self.is_answered = False
        self._lost = lost

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.is_answered = True

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self.is_answered = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.is_open = False

    def abort(self) -> None:
        self.close()

    def lose(self) -> None:
        """Report the connection as lost."""
        self.is_open = False
        self._lost(None)
