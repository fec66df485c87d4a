"""The lag of groups on partitions of other brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

import pytest

from broker.shard_requests import RecordingPublisher
from broker.test_peer_end_offsets import follower_of
from partage.broker.coordination.lag_sampler import LagSampler
from partage.broker.coordination.shard_host import ShardHost
from partage.coordinator.records import OffsetRecord
from partage.model.topic_partition import TopicPartition
from partage.store.group_events import TOPIC, LagSample
from store.zk_fixture import run

from .test_shared_store import SETTINGS, StoreFixture


class FakeRemoteEndOffsets:
    """End offsets of partitions that this broker does not have; each may be requested."""

    def __init__(self, ends: Mapping[TopicPartition, int]) -> None:
        self.known = dict(ends)
        self.asked: list[set[TopicPartition]] = []

    async def fetch(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.asked.append(set(places))
        return {place: end for place, end in self.known.items() if place in places}


class SampledStore(StoreFixture):
    """A group with commits, and the published lag samples."""

    async def come(self, elsewhere: FakeRemoteEndOffsets) -> SampledStore:
        await self.open()
        self.heard = RecordingPublisher()
        self.host = ShardHost(
            "the shard", self.store, SETTINGS, self.clock, lambda notice: None, None, self.heard
        )
        self.host.resign()
        self.one = await follower_of(("here", (1,)), ("there", (2, 2, 3)), (TOPIC, (1, 2)))
        self.sampling = LagSampler([self.host], self.one.hosted, self.clock, 0, elsewhere)
        return self

    async def commits(self, places: Collection[TopicPartition], offset: int) -> None:
        log = await self.other.acquire()
        records = [
            OffsetRecord(group_id="g", topic=topic, partition=number, offset=offset, commit_ms=0)
            for topic, number in places
        ]
        assert await self.other.store(log, *records) == [None] * len(records)
        await self.acquire()

    @property
    def lags(self) -> list[dict[str, dict[int, int]]]:
        return [each.lag for each in self.heard.published if isinstance(each, LagSample)]


ALL = [("here", 0), ("there", 0), ("there", 1), ("there", 2), (TOPIC, 1), ("gone", 0), ("there", 9)]


def test_lag_of_remote_partitions_is_published() -> None:
    async def scenario() -> None:
        elsewhere = FakeRemoteEndOffsets({("there", 0): 15, ("there", 1): 3})
        sampled = await SampledStore().come(elsewhere)
        await sampled.commits(ALL, 5)
        await sampled.sampling.sample_once()
        assert elsewhere.asked == [{("there", 0), ("there", 1), ("there", 2)}]
        assert sampled.lags == [{"here": {0: 0}, "there": {0: 10, 1: 0}}]
        await sampled.sampling.sample_once()
        assert len(sampled.lags) == 1
        elsewhere.known["there", 2] = 6  # its broker is back
        await sampled.sampling.sample_once()
        assert sampled.lags[1:] == [{"here": {0: 0}, "there": {0: 10, 1: 0, 2: 1}}]
        sampled.host.close()

    run(scenario())


def test_invalid_lease_publishes_no_lag() -> None:
    """It is published once the lease is valid again."""

    async def scenario() -> None:
        sampled = await SampledStore().come(FakeRemoteEndOffsets({("there", 0): 15}))
        await sampled.commits(ALL, 5)
        sampled.has_lease = False
        await sampled.sampling.sample_once()
        sampled.has_lease = True
        sampled.host.flush()
        assert sampled.lags == []
        await sampled.sampling.sample_once()
        assert len(sampled.lags) == 1
        sampled.host.resign()
        await sampled.sampling.sample_once()
        sampled.host.publish(LagSample(at_ms=1, group_id="g", generation=0, lag={"here": {0: 7}}))
        assert len(sampled.lags) == 1
        sampled.host.close()

    run(scenario())


def test_remote_partitions_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("partage.broker.coordination.lag_sampler.REMOTE_PARTITIONS_MAX", 2)

    async def scenario() -> None:
        elsewhere = FakeRemoteEndOffsets({("there", n): 15 for n in range(3)})
        sampled = await SampledStore().come(elsewhere)
        await sampled.commits(ALL, 5)
        await sampled.sampling.sample_once()
        assert [len(asked) for asked in elsewhere.asked] == [2]
        assert sampled.lags == [{"here": {0: 0}, "there": {0: 10, 1: 10}}]
        sampled.host.close()

    run(scenario())


def test_shard_lost_during_fetch_publishes_nothing() -> None:
    class Slow(FakeRemoteEndOffsets):
        async def fetch(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
            sampled.host.resign()
            await asyncio.sleep(0)
            return await super().fetch(places)

    sampled = SampledStore()

    async def scenario() -> None:
        await sampled.come(Slow({("there", 0): 15}))
        await sampled.commits(ALL, 5)
        await sampled.sampling.sample_once()
        assert sampled.lags == []
        sampled.host.close()

    run(scenario())


def test_shard_reacquired_during_sample_publishes_next_time() -> None:
    """The sampled offsets are of an earlier ownership."""

    class Retaken(LagSampler):
        async def _yield_periodically(self) -> None:
            if not sampled.retaken:
                sampled.retaken += 1
                sampled.host.resign()
                await sampled.acquire()

    sampled = SampledStore()

    async def scenario() -> None:
        await sampled.come(FakeRemoteEndOffsets({}))
        await sampled.commits([("here", 0)], 5)
        sampling = Retaken([sampled.host], sampled.one.hosted, sampled.clock, 0)
        await sampling.sample_once()
        assert sampled.retaken
        assert sampled.lags == []
        await sampling.sample_once()
        assert sampled.lags == [{"here": {0: 0}}]
        sampled.host.close()

    run(scenario())
