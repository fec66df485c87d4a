"""The racks of partitions, as the groups of a broker in a cluster see them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Self

from partage.broker.clock import Clock
from partage.broker.coordination.topic_images import TopicImages
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.log_writer import LogWriter
from partage.log.memory_disk import MemoryDisk
from partage.model.settings import BrokerSettings

A, B, NONE = frozenset({"a"}), frozenset({"b"}), frozenset[str]()


class Fixture:
    """The topic images of a broker without a server."""

    async def open(self, rack: str | None = "a") -> Self:
        disk = MemoryDisk()
        writer = LogWriter(disk, sync=False, inline=True)
        settings = BrokerSettings(offsets_partitions=1)
        self.topics = LogManager(disk, writer, Clock(), settings, self.on_fatal)
        await self.topics.open()
        self.images = TopicImages(self.topics, rack)
        self.changed = asyncio.Event()
        self.images.on_changed = self.changed.set
        return self

    def on_fatal(self, error: BaseException) -> None:
        raise error

    async def create(self, name: str, *brokers: int) -> None:
        self.changed.clear()
        await self.topics.create(name, len(brokers), {}, brokers=brokers)
        await self.changed.wait()

    async def update_racks(self, racks: Mapping[int, str | None]) -> None:
        self.changed.clear()
        self.images.update_racks(racks)
        await self.changed.wait()

    def racks(self, name: str) -> tuple[frozenset[str], ...]:
        return self.images.to_event(0).topics[name].racks


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_partitions_have_racks_of_their_brokers() -> None:
    async def scenario() -> None:
        fixture = await Fixture().open()
        await fixture.create("t", 1, 2, 3)
        assert fixture.racks("t") == ()
        await fixture.update_racks({1: "a", 2: "b", 3: None})
        assert fixture.racks("t") == (A, B, NONE)
        await fixture.create("u", 2, 2)
        assert fixture.racks("u") == (B, B)
        await fixture.create("w", 3, 3)
        assert fixture.racks("w") == ()

    run(scenario())


def test_broker_that_is_away_keeps_its_rack() -> None:
    async def scenario() -> None:
        fixture = await Fixture().open()
        await fixture.create("t", 1, 2)
        await fixture.update_racks({1: "a", 2: "b"})
        version = fixture.images.version
        fixture.images.update_racks({1: "a"})
        await fixture.create("u", 2)
        assert (fixture.racks("t"), fixture.racks("u")) == ((A, B), (B,))
        assert fixture.images.version == version + 1
        await fixture.update_racks({1: "a", 2: None})
        assert fixture.racks("t") == (A, NONE)

    run(scenario())


def test_topics_of_known_racks_stay_equal_if_others_change() -> None:
    async def scenario() -> None:
        fixture = await Fixture().open()
        await fixture.create("t", 1)
        await fixture.create("u", 2)
        await fixture.update_racks({1: "a"})
        before = fixture.images.to_event(0).topics
        await fixture.update_racks({1: "a", 2: "b"})
        after = fixture.images.to_event(0).topics
        assert after["t"] is before["t"]
        assert after["u"] != before["u"]

    run(scenario())
