"""Merging a shard's log in ZooKeeper, and removal of the replaced data."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from partage.coordinator.records import OffsetTombstone
from partage.store.memory import MemoryZooKeeper, lose_transactions
from partage.store.zookeeper import (
    Delete,
    Operation,
    RefusedError,
    SessionEndedError,
    SetData,
)

from .zk_fixture import (
    PATHS,
    BrokerStores,
    at_once,
    committed,
    offsets,
    run,
)


def test_merge_keeps_data_and_removes_entries() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        log = await one.acquire()
        for number in range(100):
            await one.store(log, committed(number, number % 3))
            if log.needs_merge:
                await log.merge(at_once)
        assert len(await one.session.children(PATHS.log(0))) < 64
        await two.acquire()
        assert await offsets(two) == {0: 99, 1: 97, 2: 98}

    run(scenario())


def test_random_writes_merges_and_owner_changes() -> None:
    """Reading returns all acknowledged data, across removals, merges and changes of the owner."""
    chance = random.Random(5)

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        players = [await BrokerStores(zoo, n).register() for n in (1, 2)]
        owner = players[0]
        log = await owner.acquire()
        told: dict[int, int] = {}
        for step in range(400):
            partition = chance.randrange(6)
            what = chance.random()
            if what < 0.08:
                owner = chance.choice(players)
                log = await owner.acquire()
            elif what < 0.2:
                await log.merge(at_once)
            elif what < 0.4:
                removal = OffsetTombstone(group_id="g", topic="t", partition=partition)
                assert await owner.store(log, removal) == [None]
                told.pop(partition, None)
            else:
                assert await owner.store(log, committed(step, partition)) == [None]
                told[partition] = step
            assert await offsets(players[1]) == told, step

    run(scenario())


def test_append_during_merge_is_kept() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await BrokerStores(zoo, 1).register()
        log = await one.acquire()
        await one.store(log, committed(1), committed(2, 1))

        async def meanwhile(work: Callable[[], list[bytes]]) -> list[bytes]:
            assert await one.store(log, committed(3), committed(4, 2)) == [None] * 2
            await log.merge(at_once)  # a concurrent merge does nothing
            return work()

        await log.merge(meanwhile)
        assert await offsets(one) == {0: 3, 1: 2, 2: 4}
        await one.store(log, committed(5, 3))
        await log.merge(at_once)
        assert await offsets(one) == {0: 3, 1: 2, 2: 4, 3: 5}
        assert await one.session.children(PATHS.log(0)) == []

    run(scenario())


def test_late_append_after_merge_is_removed() -> None:
    """It is ignored, and the next owner removes it."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await BrokerStores(zoo, 1).register()
        log = await one.acquire()
        await one.store(log, committed(1))
        again = zoo.history[-1]
        await one.store(log, committed(2))
        await log.merge(at_once)
        zoo.transact(again, one.session.session_id)
        assert len(await one.session.children(PATHS.log(0))) == 1
        assert await offsets(one) == {0: 2}
        log = await one.acquire()
        await one.store(log, committed(3))
        await log.merge(at_once)
        assert await one.session.children(PATHS.log(0)) == []
        assert await offsets(one) == {0: 3}

    run(scenario())


def test_fenced_owner_cannot_merge() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        old = await one.acquire()
        await one.store(old, *[committed(n) for n in range(10)])
        new = await two.acquire()
        await two.store(new, committed(77))
        with pytest.raises(RefusedError):
            await old.merge(at_once)
        assert await offsets(two) == {0: 77}

    run(scenario())


def test_large_merge_fits_into_packets() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await BrokerStores(zoo, 1).register()
        log = await one.acquire()
        await one.store(log, *[committed(n) for n in range(1500)])
        one.session.after = lose_transactions(3)
        before = len(zoo.history)
        await log.merge(at_once)
        assert max(map(len, zoo.history[before:])) <= 501
        assert await one.session.children(PATHS.log(0)) == []
        assert await offsets(one) == {0: 1499}

    run(scenario())


def test_orphans_of_merge_ignored_then_removed() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        log = await one.acquire()
        await one.store(log, committed(5), committed(6))

        async def crash(what: Sequence[Operation] | str) -> None:
            if isinstance(what[-1], Delete):
                zoo.expire(one.session)

        one.session.before = crash
        with pytest.raises(SessionEndedError):
            await log.merge(at_once)
        assert await offsets(two) == {0: 6}
        next_log = await two.acquire()
        await two.store(next_log, committed(7))
        await next_log.merge(at_once)
        assert await two.session.children(PATHS.log(0)) == []
        assert await offsets(two) == {0: 7}

    run(scenario())


def test_late_merge_does_not_undo_later_merge() -> None:
    """The connection was lost, and the servers apply the request after its data was replaced."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        log = await one.acquire()
        swings: list[list[Operation]] = []

        async def seen(what: Sequence[Operation] | str) -> None:
            if not isinstance(what, str) and any(isinstance(each, SetData) for each in what):
                swings.append(list(what))

        await one.store(log, committed(1, 0))
        before, one.session.before = one.session.before, seen
        await log.merge(at_once)
        one.session.before = before
        for number in (2, 3, 4):
            await one.store(log, committed(number, number))
            await log.merge(at_once)
        (late,) = swings
        with pytest.raises(RefusedError):
            await one.session.transact(late)
        await two.acquire()
        assert await offsets(two) == {0: 1, 2: 2, 3: 3, 4: 4}

    run(scenario())


def test_merge_after_merge_in_doubt() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await BrokerStores(zoo, 1).register()
        log = await one.acquire()
        await one.store(log, committed(1, 0))
        log._state_version += 1
        with pytest.raises(RefusedError):
            await log.merge(at_once)
        await log.merge(at_once)
        assert await offsets(one) == {0: 1}
        assert await one.session.children(PATHS.log(0)) == []

    run(scenario())
