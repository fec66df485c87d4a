"""The fetchers of the first design's consumers, with a broker of records."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from confluent_kafka import Producer

from partage.client.consumer import Record
from partage.model.topic_partition import TopicPartition
from partage.proposals.sockets.broker_side.fetchers import Fetchers
from partage.testing import ThreadedBroker
from polled_conditions import eventually_async

WAIT_S = 60.0


class Stage:
    """Fetchers with one partition that has three records."""

    def __init__(self, records: ThreadedBroker, topic: str, reset_to: str) -> None:
        self.partition = TopicPartition(topic, 0)
        self.delivered: list[int] = []
        self.out_of_range: list[frozenset[TopicPartition]] = []
        self.before_delivery: Callable[[], None] = lambda: None
        self._servers = records.bootstrap_servers
        self.fetchers = Fetchers(
            self._servers,
            self._deliver,
            reset_to=reset_to,
            on_out_of_range=self._on_out_of_range,
            on_change=lambda partitions: None,
            before_delivery=lambda: self.before_delivery(),
        )
        self._changed = asyncio.Event()

    def produce(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self._servers})
        for _ in range(count):
            producer.produce(self.partition.topic, value=b"v", partition=0)
        assert producer.flush(WAIT_S) == 0

    def _deliver(self, records: list[Record]) -> None:
        self.delivered += [record.offset for record in records]
        self._changed.set()

    def _on_out_of_range(self, partitions: frozenset[TopicPartition]) -> None:
        self.out_of_range.append(partitions)
        self.fetchers.stop(None)
        self._changed.set()

    @property
    def position(self) -> int | None:
        return self.fetchers.positions(frozenset({self.partition})).get(self.partition)

    async def wait(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


Run = Callable[[Callable[[Stage], Awaitable[None]], str], None]


@pytest.fixture
def run(records: ThreadedBroker, request: pytest.FixtureRequest) -> Run:
    def start(play: Callable[[Stage], Awaitable[None]], reset_to: str) -> None:
        async def whole() -> None:
            stage = Stage(records, f"fetched-{request.node.name}", reset_to)
            async with stage.fetchers:
                stage.produce(3)
                await play(stage)

        records.create_topic(f"fetched-{request.node.name}")
        asyncio.run(whole())

    return start


def test_offset_out_of_range_is_reported_and_reset(run: Run) -> None:
    async def play(stage: Stage) -> None:
        stage.fetchers.start({stage.partition: 99})
        await stage.wait(lambda: stage.out_of_range)
        assert stage.out_of_range == [frozenset({stage.partition})]
        stage.fetchers.reset(frozenset({stage.partition}), "smallest")
        await stage.wait(lambda: stage.delivered == [0, 1, 2])
        assert stage.position == 3

    run(play, "largest")


def test_partition_without_an_offset_begins_at_the_smallest(run: Run) -> None:
    async def play(stage: Stage) -> None:
        stage.fetchers.start({stage.partition: -1})
        await stage.wait(lambda: stage.delivered == [0, 1, 2])

    run(play, "smallest")


def test_partition_that_begins_at_the_largest_offset_has_a_position(run: Run) -> None:
    async def play(stage: Stage) -> None:
        stage.fetchers.start({stage.partition: -1})
        await eventually_async(lambda: stage.position is not None)
        stage.fetchers.stop(None)
        stage.produce(2)
        assert stage.position == 3
        stage.fetchers.start({stage.partition: 3})
        await stage.wait(lambda: stage.delivered == [3, 4])

    run(play, "largest")


def test_records_of_a_partition_stopped_before_delivery_are_dropped(
    run: Run,
) -> None:
    async def play(stage: Stage) -> None:
        stopped = asyncio.Event()

        def stop() -> None:
            stage.before_delivery = lambda: None
            stage.fetchers.stop(None)
            stopped.set()

        stage.before_delivery = stop
        stage.fetchers.start({stage.partition: 1})
        await asyncio.wait_for(stopped.wait(), WAIT_S)
        await asyncio.sleep(0)
        assert stage.delivered == []
        assert stage.position == 1
        stage.fetchers.resume(frozenset({stage.partition}))
        await stage.wait(lambda: stage.delivered == [1, 2])

    run(play, "smallest")
