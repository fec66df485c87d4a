"""Brokers on a ZooKeeper in memory, without sockets: what tests of the stores play with."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from partage.coordinator.records import GroupSaved, OffsetCommitted, Record, SavedMember
from partage.coordinator.shard import Shard
from partage.model.settings import GroupSettings
from partage.store.founding import found_cluster
from partage.store.gathering import Gatherer
from partage.store.memory import MemorySession, MemoryZooKeeper
from partage.store.roster import Roster
from partage.store.shard_log import encode_records, replay
from partage.store.shared_log import SharedLog
from partage.store.shared_topics import SharedTopics
from partage.store.tree import BrokerDoc, TopicDoc, Tree
from partage.store.zookeeper import Create, Operation, SetData, StoreFault

T = TypeVar("T")
TREE = Tree("/a/cluster")
SHARDS = 4


def play(scenario: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(scenario)


def nothing() -> None:
    """Nobody listens."""


async def at_once(work: Callable[[], list[bytes]]) -> list[bytes]:
    return work()


def made(topic_id: str, *brokers: int) -> Callable[[Mapping[str, TopicDoc]], TopicDoc]:
    """Decides on a topic with partitions on these brokers, whatever others there are."""
    return lambda topics: TopicDoc(id=topic_id, brokers=brokers)


def committed(offset: int, partition: int = 0, group_id: str = "g") -> OffsetCommitted:
    return OffsetCommitted(
        group_id=group_id, topic="t", partition=partition, offset=offset, commit_ms=0
    )


def size_of(operations: Sequence[Operation]) -> int:
    data = (op.data for op in operations if isinstance(op, Create | SetData))
    return sum(map(len, data)) + sum(len(op.path) for op in operations)


def large_group(members: int, bytes_each: int = 260) -> GroupSaved:
    chance = random.Random(members)
    return GroupSaved(
        group_id="large",
        protocol_type="consumer",
        generation=7,
        protocol="range",
        leader="m0",
        members=tuple(
            SavedMember(
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


class Player:
    """A broker's side of the stores."""

    def __init__(self, zoo: MemoryZooKeeper, broker_id: int, directory: str = "") -> None:
        self.session: MemorySession = zoo.connect()
        self.broker_id = broker_id
        self.incarnation = f"{broker_id}.{self.session.session_id}"
        self.directory = directory or f"directory of {broker_id}"
        self.roster = Roster(self.session, TREE, broker_id, SHARDS)
        self.topics = SharedTopics(self.session, TREE, broker_id)
        self.gatherer = Gatherer(self.session)
        self.told: list[StoreFault | None] = []

    async def come(self) -> Player:
        await found_cluster(self.session, TREE, "the cluster", SHARDS)
        me = BrokerDoc(
            host="h",
            port=self.broker_id,
            incarnation=self.incarnation,
            directory=self.directory,
        )
        await self.roster.register(me)
        await self.look()
        return self

    async def look(self) -> None:
        await self.roster.refresh(nothing)

    async def take(self, shard: int = 0) -> SharedLog:
        await self.look()
        (tenure,) = await self.roster.take([shard])
        log = SharedLog(self.session, TREE, shard, tenure.version, tenure.epoch)
        await log.load()
        return log

    async def store(self, log: SharedLog, *records: Record) -> list[StoreFault | None]:
        """Append records, each in an entry of its own; what was told of each."""
        told: list[StoreFault | None] = []
        for record in records:
            for batch in encode_records([record], 0):
                self.gatherer.add(log, batch, told.append)
        await self.gatherer.flush()
        return told

    async def read(self, shard: int = 0) -> Shard:
        """The shard as whoever looks finds it, without taking it."""
        return replay(await SharedLog(self.session, TREE, shard, 0, 0).load(), GroupSettings())


async def offsets(player: Player, shard: int = 0, group_id: str = "g") -> dict[int, int]:
    """What is committed, by partition."""
    found = (await player.read(shard)).offsets.get(group_id, {})
    return {partition: each.offset for (_, partition), each in found.items()}
