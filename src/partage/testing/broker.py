"""A broker in this process, on a separate thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from partage.broker.broker import Broker
from partage.broker.overrides import apply_overrides
from partage.log.memory_disk import MemoryDisk
from partage.log.results import Refusal
from partage.model.settings import BrokerSettings
from partage.testing.faults import Faults

T = TypeVar("T")

#: Tests need groups without delay: no initial rebalance delay, short sessions. They list topics, so
#: ``__group_events`` is disabled.
TEST_OVERRIDES: Mapping[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "4",
    "partage.group.events.enable": "false",
}
_START_TIMEOUT_S = 30.0


class ThreadedBroker:
    """A broker with all data in memory, on a free port of 127.0.0.1.

    A context manager::

        with ThreadedBroker() as broker:
            Producer({"bootstrap.servers": broker.bootstrap_servers})

    Args:
        overrides: broker settings by Kafka's names, in addition to `TEST_OVERRIDES`.
    """

    def __init__(self, overrides: Mapping[str, str] | None = None) -> None:
        self._settings = apply_overrides(BrokerSettings(), {**TEST_OVERRIDES, **(overrides or {})})
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="partage-broker", daemon=True)
        self._broker: Broker | None = None
        self._faults: Faults | None = None
        self._failure: BaseException | None = None
        self._is_up = threading.Event()
        self._stopping = asyncio.Event()

    @property
    def bootstrap_servers(self) -> str:
        """Address for clients, ``127.0.0.1:PORT``."""
        host, port = self.broker.address
        return f"{host}:{port}"

    @property
    def broker(self) -> Broker:
        """The broker, for work on its loop; see `run`."""
        assert self._broker is not None, "the broker is not started"
        return self._broker

    @property
    def faults(self) -> Faults:
        """The faults that can be injected."""
        assert self._faults is not None, "the broker is not started"
        return self._faults

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic.

        Raises:
            ValueError: the broker refused it; the message says why.
        """
        created = self.run(self.broker.log_manager.create(name, partitions, {}))
        if isinstance(created, Refusal):
            raise ValueError(f"topic {name!r} was not created: {created.message}")

    def start(self) -> Self:
        """Start, and return once clients can connect.

        Raises:
            TimeoutError: the broker did not start in time.
        """
        self._thread.start()
        if not self._is_up.wait(_START_TIMEOUT_S):
            raise TimeoutError(f"the broker did not start within {_START_TIMEOUT_S:g} s")
        if self._failure is not None:
            raise self._failure
        return self

    def stop(self) -> None:
        """Close all connections and discard all data."""
        if self._broker is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._serve())
            except BaseException as error:  # raised again by `start`
                self._failure = error
            finally:
                self._is_up.set()

    async def _serve(self) -> None:
        self._broker = await Broker.start(MemoryDisk(), self._settings, host="127.0.0.1", port=0)
        self._faults = Faults(self._broker, self._call)
        self._is_up.set()
        await self._stopping.wait()
        await self._broker.stop()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the broker's loop and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _call(self, work: Callable[[], T]) -> T:
        async def working() -> T:
            return work()

        return self.run(working())
