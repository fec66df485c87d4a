"""Brokers on an in-memory ZooKeeper without sockets, for tests of the stores."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from partage.coordinator.records import GroupRecord, MemberRecord, OffsetRecord, Record
from partage.coordinator.shard import Shard
from partage.model.settings import GroupSettings
from partage.store.bootstrap import find_or_create_cluster
from partage.store.cluster_registry import ClusterRegistry
from partage.store.memory import MemorySession, MemoryZooKeeper
from partage.store.shard_log import encode_records, replay
from partage.store.shared_log import SharedLog
from partage.store.shared_topics import SharedTopics
from partage.store.write_batcher import WriteBatcher
from partage.store.zk_schema import BrokerDoc, TopicDoc, ZkPaths
from partage.store.zookeeper import Create, Operation, SetData, StoreError

T = TypeVar("T")
PATHS = ZkPaths("/a/cluster")
SHARDS = 4


def run(scenario: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(scenario)


def nothing() -> None:
    """Ignore a change."""


async def at_once(work: Callable[[], list[bytes]]) -> list[bytes]:
    return work()


def made(topic_id: str, *brokers: int) -> Callable[[Mapping[str, TopicDoc]], TopicDoc]:
    """Return a decision for a topic with partitions on these brokers."""
    return lambda topics: TopicDoc(id=topic_id, brokers=brokers)


def committed(offset: int, partition: int = 0, group_id: str = "g") -> OffsetRecord:
    return OffsetRecord(
        group_id=group_id, topic="t", partition=partition, offset=offset, commit_ms=0
    )


def size_of(operations: Sequence[Operation]) -> int:
    data = (op.data for op in operations if isinstance(op, Create | SetData))
    return sum(map(len, data)) + sum(len(op.path) for op in operations)


def large_group(members: int, bytes_each: int = 260) -> GroupRecord:
    chance = random.Random(members)
    return GroupRecord(
        group_id="large",
        protocol_type="consumer",
        generation=7,
        protocol="range",
        leader="m0",
        members=tuple(
            MemberRecord(
                member_id=f"m{n}",
                instance_id=None,
                client_id="c",
                client_host="/h",
                rebalance_timeout_ms=1,
                session_timeout_ms=1,
                subscription=chance.randbytes(bytes_each),
            )
            for n in range(members)
        ),
    )


class BrokerStores:
    """The stores of one broker."""

    def __init__(self, zoo: MemoryZooKeeper, broker_id: int, directory: str = "") -> None:
        self.session: MemorySession = zoo.connect()
        self.broker_id = broker_id
        self.incarnation = f"{broker_id}.{self.session.session_id}"
        self.directory = directory or f"directory of {broker_id}"
        self.roster = ClusterRegistry(self.session, PATHS, broker_id, SHARDS)
        self.topics = SharedTopics(self.session, PATHS, broker_id)
        self.gatherer = WriteBatcher(self.session)
        self.told: list[StoreError | None] = []

    async def register(self) -> BrokerStores:
        await find_or_create_cluster(self.session, PATHS, "the cluster", SHARDS)
        me = BrokerDoc(
            host="h",
            port=self.broker_id,
            incarnation=self.incarnation,
            directory=self.directory,
        )
        await self.roster.register(me)
        await self.refresh()
        return self

    async def refresh(self) -> None:
        await self.roster.refresh(nothing)

    async def acquire(self, shard: int = 0) -> SharedLog:
        await self.refresh()
        (tenure,) = await self.roster.acquire([shard])
        log = SharedLog(self.session, PATHS, shard, tenure.version, tenure.epoch)
        await log.load()
        return log

    async def store(self, log: SharedLog, *records: Record) -> list[StoreError | None]:
        """Append records, one entry for each, and return the results."""
        told: list[StoreError | None] = []
        for record in records:
            for batch in encode_records([record], 0):
                self.gatherer.enqueue(log, batch, told.append)
        await self.gatherer.flush()
        return told

    async def read(self, shard: int = 0) -> Shard:
        """Return the shard as a reader finds it, without taking it."""
        return replay(await SharedLog(self.session, PATHS, shard, 0, 0).load(), GroupSettings())


async def offsets(player: BrokerStores, shard: int = 0, group_id: str = "g") -> dict[int, int]:
    """Return the committed offsets, by partition."""
    found = (await player.read(shard)).offsets.get(group_id, {})
    return {partition: each.offset for (_, partition), each in found.items()}
