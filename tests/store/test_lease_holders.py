"""Two brokers that may both believe to own a shard, on a network that loses and delays.

Each seed is a different run. The brokers take the shard from each other, write, merge, and lose
their sessions. Requests and replies get lost, and requests arrive much later. The last acknowledged
write, or a later attempt, must be found. No write of a former owner may be acknowledged.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from typing import Any

import pytest

from partage.store.memory import MemoryZooKeeper
from partage.store.shared_log import SharedLog
from partage.store.zookeeper import (
    ANY_VERSION,
    Check,
    InDoubtError,
    Operation,
    RefusedError,
    StoreError,
)

from .zk_fixture import BrokerStores, at_once, committed, offsets, run

STEPS = 150
PARTITIONS = 4


class LeaseWorld:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.zoo = MemoryZooKeeper()
        self.late: list[tuple[BrokerStores, Sequence[Operation]]] = []
        self.believes: dict[int, tuple[BrokerStores, SharedLog]] = {}
        self.epoch = 0
        #: The allowed values by partition: the last acknowledged one, and later attempts.
        self.possible: dict[int, list[int | None]] = {n: [None] for n in range(PARTITIONS)}
        self.faults = self.chance.choice([0.0, 0.1, 0.3])

    async def come(self, broker_id: int) -> BrokerStores:
        player = await BrokerStores(self.zoo, broker_id).register()

        async def before(what: Sequence[Operation] | str) -> None:
            if isinstance(what, str) or self.chance.random() >= self.faults:
                return
            if self.chance.random() < 0.5:
                self.late.append((player, what))  # it arrives later
            raise InDoubtError("lost on the way there")

        async def after(what: Sequence[Operation] | str) -> None:
            if not isinstance(what, str) and self.chance.random() < self.faults:
                raise InDoubtError("lost on the way back")

        player.session.before, player.session.after = before, after
        return player

    def deliver(self) -> None:
        player, operations = self.late.pop(self.chance.randrange(len(self.late)))
        if self.zoo.is_alive(player.session):
            with contextlib.suppress(RefusedError):
                self.zoo.transact(operations, player.session.session_id)

    async def write(self, player: BrokerStores, log: SharedLog, step: int) -> None:
        partition = self.chance.randrange(PARTITIONS)
        self.possible[partition].append(step)
        (told,) = await player.store(log, committed(step, partition))
        if told is None:
            assert log.epoch == self.epoch, "a deposed one was acknowledged"
            self.possible[partition] = [step]

    async def step(self, step: int, players: dict[int, BrokerStores]) -> None:
        broker_id = self.chance.choice([1, 2])
        player, what = players[broker_id], self.chance.random()
        if self.late and what < 0.1:
            self.deliver()
        elif what < 0.25 or broker_id not in self.believes:
            log = await player.acquire()
            self.epoch = log.epoch
            self.believes[broker_id] = player, log
        elif what < 0.3:
            self.zoo.expire(player.session)
            self.believes.pop(broker_id)
            players[broker_id] = await self.come(broker_id)
        elif what < 0.45:
            with contextlib.suppress(StoreError):
                await self.believes[broker_id][1].merge(at_once)
        else:
            await self.write(*self.believes[broker_id], step)


def live(seed: int) -> None:
    async def scenario() -> None:
        world = LeaseWorld(seed)
        players = {broker_id: await world.come(broker_id) for broker_id in (1, 2)}
        looking = await BrokerStores(world.zoo, 9).register()
        for step in range(STEPS):
            await world.step(step, players)
            found = await offsets(looking)
            for partition, possible in world.possible.items():
                assert found.get(partition) in possible, (step, partition, found, possible)

    run(scenario())


@pytest.mark.parametrize("seed", range(60))
def test_two_lease_holders_keep_acknowledged_data(seed: int) -> None:
    live(seed)


def test_missing_fence_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = SharedLog.__init__

    def unfenced(log: SharedLog, *made_of: Any) -> None:
        begin(log, *made_of)
        log.fence = Check(log.fence.path, ANY_VERSION)

    monkeypatch.setattr(SharedLog, "__init__", unfenced)

    def live_all() -> None:
        for seed in range(10):
            live(seed)

    with pytest.raises(AssertionError, match="deposed one was acknowledged"):
        live_all()
