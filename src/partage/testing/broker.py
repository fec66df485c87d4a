"""A broker in this process, on a separate thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from partage.broker.broker import Broker
from partage.broker.overrides import apply_overrides
from partage.log.memory_disk import MemoryDisk
from partage.log.results import Refusal
from partage.model.settings import BrokerSettings
from partage.model.topic_partition import TopicPartition
from partage.testing.broker_loop import BrokerLoop
from partage.testing.broker_state import (
    read_committed,
    read_records,
    remove_all_state,
)
from partage.testing.faults import Faults
from partage.testing.request_interceptor import UnusedFaultError
from partage.testing.settings import Settings, to_texts

if TYPE_CHECKING:
    from partage.client.consumer.records import Record

T = TypeVar("T")

#: Tests need groups without delay: no initial rebalance delay, short sessions, frequent heartbeats
#: where the broker decides. They list topics, so ``__group_events`` is disabled.
TEST_OVERRIDES: Mapping[str, str] = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "10",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": "6000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "4",
    "partage.group.events.enable": "false",
}
_START_TIMEOUT_S = 30.0
_NOT_STARTED = "the broker is not started: use it in a with statement, or call start()"
#: Brokers between `ThreadedBroker.start` and `ThreadedBroker.stop`.
_running: set[ThreadedBroker] = set()


class ThreadedBroker:
    """A broker with all data in memory, on a free port of 127.0.0.1.

    A context manager::

        with ThreadedBroker() as broker:
            Producer({"bootstrap.servers": broker.bootstrap_servers})

    It raises `UnusedFaultError` at its end if a required fault has not happened.

    All methods block for milliseconds at most, so coroutines may call them.

    Args:
        overrides: broker settings by Kafka's names, in addition to `TEST_OVERRIDES`. Values are
            strings, booleans or numbers.

    Raises:
        ValueError: a setting is unknown, or its value is invalid.
    """

    def __init__(self, overrides: Settings | None = None) -> None:
        texts = {**TEST_OVERRIDES, **to_texts(overrides or {})}
        self._settings = apply_overrides(BrokerSettings(), texts)
        self._disk = MemoryDisk()
        self._loop = asyncio.new_event_loop()
        self._broker_loop = BrokerLoop(self._loop)
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
        if self._broker is None:
            raise RuntimeError(_NOT_STARTED)
        return self._broker

    @property
    def faults(self) -> Faults:
        """The faults that can be injected; see `partage.testing.Faults`."""
        if self._faults is None:
            raise RuntimeError(_NOT_STARTED)
        return self._faults

    def create_topic(
        self, name: str, partitions: int = 1, *, configs: Settings | None = None
    ) -> None:
        """Create a topic.

        Args:
            name: the topic.
            partitions: the number of partitions.
            configs: topic configs by Kafka's names, such as ``{"cleanup.policy": "compact"}``.

        Raises:
            ValueError: the broker refused it; the message says why.
        """
        texts = to_texts(configs or {})
        created = self.run(self.broker.log_manager.create(name, partitions, texts))
        if isinstance(created, Refusal):
            raise ValueError(f"topic {name!r} was not created: {created.message}")

    def records(self, topic: str) -> list[Record]:
        """Return all records of a topic, by partition and offset.

        No client is involved, so faults and groups are not affected.

        Raises:
            LookupError: the topic does not exist; the message has the most similar name.
        """
        return self._broker_loop.call(lambda: read_records(self.broker, self._disk, topic))

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group; empty if the group has none or does not exist.

        A `partage.TopicPartition` equals a pair of topic and number.

        Raises:
            RuntimeError: the coordinator was killed.
        """
        return self._broker_loop.call(lambda: read_committed(self.broker, group_id))

    def reset(self) -> None:
        """Make the broker empty again: remove all topics, groups, offsets, transactional ids,
        altered configs, and faults.

        The address stays, and clients stay connected. A member that is still open joins its group
        again, so close the clients of a test first. Use this between the tests that share a broker.
        Only internal topics keep their records: ``__group_events``, if it is enabled.

        Raises:
            UnusedFaultError: a required fault has not happened; the broker is empty nevertheless.
        """
        unused: UnusedFaultError | None = None
        try:
            self.faults.check_used()
        except UnusedFaultError as error:
            unused = error
        self.faults.reset()
        self.run(remove_all_state(self.broker))
        if unused is not None:
            raise unused

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
        _running.add(self)
        return self

    def stop(self) -> None:
        """Close all connections and discard all data."""
        _running.discard(self)
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
        try:
            if error is None:
                self.faults.check_used()
        finally:
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
        self._broker = await Broker.start(self._disk, self._settings, host="127.0.0.1", port=0)
        self._faults = Faults(self._broker, self._broker_loop)
        self._is_up.set()
        await self._stopping.wait()
        await self._broker.stop()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the broker's loop and wait for its result."""
        return self._broker_loop.run(work)


def waive_faults() -> None:
    """Let the injected faults of all running brokers be unused: their test has not passed."""
    for broker in list(_running):
        broker.faults.waive()
