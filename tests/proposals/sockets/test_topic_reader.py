"""The reader of a member's partitions, with the records of a real broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal

import pytest
from confluent_kafka import Producer

from partage.client.consumer import Record
from partage.model.topic_partition import TopicPartition
from partage.proposals.sockets.topic_reader import TopicReader
from partage.testing import ThreadedBroker

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class Reading:
    """A reader with the records that it has delivered."""

    def __init__(self, broker: ThreadedBroker) -> None:
        self.values: asyncio.Queue[str] = asyncio.Queue()
        self.changes: list[frozenset[TopicPartition]] = []
        self.before_delivery: Callable[[], None] = lambda: None
        self.reader = TopicReader(
            broker.bootstrap_servers,
            self._deliver,
            on_change=self.changes.append,
            before_delivery=lambda: self.before_delivery(),
        )

    def _deliver(self, records: list[Record]) -> None:
        for record in records:
            self.values.put_nowait(record.value.decode())

    async def take(self, count: int) -> list[str]:
        """Return the next records, sorted."""
        return sorted([await self.values.get() for _ in range(count)])


class ObservedEvent(asyncio.Event):
    """An event that tells when a task begins to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self._waits = asyncio.Event()

    async def wait(self) -> Literal[True]:
        self._waits.set()
        return await super().wait()

    async def observe_wait(self) -> None:
        """Return when a task has begun to wait since the last call."""
        await self._waits.wait()
        self._waits.clear()


def run(broker: ThreadedBroker, play: Callable[[Reading], Awaitable[None]]) -> None:
    """Run a reader of a topic with the records a0, a1 and b0 in two partitions."""
    broker.create_topic("t", 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value, partition in (("a0", 0), ("a1", 0), ("b0", 1)):
        producer.produce("t", value, partition=partition)
    assert producer.flush(30) == 0

    async def main() -> None:
        reading = Reading(broker)
        async with asyncio.timeout(30), reading.reader:
            await play(reading)

    asyncio.run(main())


def test_partitions_are_read_from_their_offsets_or_the_beginning(
    partage_broker: ThreadedBroker,
) -> None:
    async def play(reading: Reading) -> None:
        reading.reader.start({FIRST: 1, SECOND: -1})
        assert await reading.take(2) == ["a1", "b0"]
        assert reading.changes == [frozenset({FIRST, SECOND})]
        assert reading.reader.positions(frozenset({FIRST, SECOND})) == {FIRST: 2, SECOND: 1}

    run(partage_broker, play)


def test_stopped_partition_continues_at_its_position_or_a_new_offset(
    partage_broker: ThreadedBroker,
) -> None:
    async def play(reading: Reading) -> None:
        reading.reader.start({FIRST: 0})
        assert await reading.take(2) == ["a0", "a1"]
        reading.reader.stop(None)
        assert reading.reader.positions(frozenset({FIRST})) == {FIRST: 2}
        reading.reader.resume(frozenset({FIRST}))
        reading.reader.start({SECOND: 0})
        assert await reading.take(1) == ["b0"]
        reading.reader.start({FIRST: 1})
        assert await reading.take(1) == ["a1"]

    run(partage_broker, play)


def test_records_of_partitions_that_stop_before_delivery_are_dropped(
    partage_broker: ThreadedBroker,
) -> None:
    async def play(reading: Reading) -> None:
        stopped = asyncio.Event()

        def stop() -> None:
            reading.before_delivery = lambda: None
            reading.reader.stop(None)
            stopped.set()

        reading.before_delivery = stop
        reading.reader.start({FIRST: 0})
        await stopped.wait()
        assert reading.reader.positions(frozenset({FIRST})) == {FIRST: 0}
        reading.reader.start({SECOND: 0})
        assert await reading.take(1) == ["b0"]
        assert reading.values.empty()

    run(partage_broker, play)


def test_stop_while_waiting_for_records_is_no_error(
    partage_broker: ThreadedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(reading: Reading) -> None:
        partitions = reading.reader._has_partitions = ObservedEvent()
        reading.reader.start({FIRST: 2})  # the end: the reader waits
        await partitions.observe_wait()
        reading.reader.stop(None)
        await partitions.observe_wait()
        reading.reader.start({SECOND: 0})
        assert await reading.take(1) == ["b0"]

    with caplog.at_level(logging.WARNING):
        run(partage_broker, play)
    assert caplog.messages == []
