"""Merging a shard's log in ZooKeeper, and removing what it replaces."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from partage.coordinator.records import OffsetRemoved
from partage.store.memory import MemoryZooKeeper, lost
from partage.store.zookeeper import (
    Delete,
    Operation,
    Refused,
    SessionOver,
    SetData,
)

from .zoo import (
    TREE,
    Player,
    at_once,
    committed,
    offsets,
    play,
)


def test_merging_keeps_what_counts_and_removes_the_entries() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await Player(zoo, 1).come(), await Player(zoo, 2).come()
        log = await one.take()
        for number in range(100):
            await one.store(log, committed(number, number % 3))
            if log.wants_merging:
                await log.merge(at_once)
        assert len(await one.session.children(TREE.log(0))) < 64
        await two.take()
        assert await offsets(two) == {0: 99, 1: 97, 2: 98}

    play(scenario())


def test_random_writes_merges_and_owners() -> None:
    """What is read is what was acknowledged, through removals, merges and changes of the owner."""
    chance = random.Random(5)

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        players = [await Player(zoo, n).come() for n in (1, 2)]
        owner = players[0]
        log = await owner.take()
        told: dict[int, int] = {}
        for step in range(400):
            partition = chance.randrange(6)
            what = chance.random()
            if what < 0.08:
                owner = chance.choice(players)
                log = await owner.take()
            elif what < 0.2:
                await log.merge(at_once)
            elif what < 0.4:
                removal = OffsetRemoved(group_id="g", topic="t", partition=partition)
                assert await owner.store(log, removal) == [None]
                told.pop(partition, None)
            else:
                assert await owner.store(log, committed(step, partition)) == [None]
                told[partition] = step
            assert await offsets(players[1]) == told, step

    play(scenario())


def test_what_is_written_while_others_are_merged_stays() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await Player(zoo, 1).come()
        log = await one.take()
        await one.store(log, committed(1), committed(2, 1))

        async def meanwhile(work: Callable[[], list[bytes]]) -> list[bytes]:
            assert await one.store(log, committed(3), committed(4, 2)) == [None] * 2
            await log.merge(at_once)  # one at a time: this does nothing
            return work()

        await log.merge(meanwhile)
        assert await offsets(one) == {0: 3, 1: 2, 2: 4}
        await one.store(log, committed(5, 3))
        await log.merge(at_once)
        assert await offsets(one) == {0: 3, 1: 2, 2: 4, 3: 5}
        assert await one.session.children(TREE.log(0)) == []

    play(scenario())


def test_a_request_that_arrives_after_the_merge_leaves_nothing_for_ever() -> None:
    """It is passed over, and removed by the next owner."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await Player(zoo, 1).come()
        log = await one.take()
        await one.store(log, committed(1))
        again = zoo.history[-1]
        await one.store(log, committed(2))
        await log.merge(at_once)
        zoo.transact(again, one.session.session_id)
        assert len(await one.session.children(TREE.log(0))) == 1
        assert await offsets(one) == {0: 2}
        log = await one.take()
        await one.store(log, committed(3))
        await log.merge(at_once)
        assert await one.session.children(TREE.log(0)) == []
        assert await offsets(one) == {0: 3}

    play(scenario())


def test_who_was_deposed_merges_nothing() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await Player(zoo, 1).come(), await Player(zoo, 2).come()
        old = await one.take()
        await one.store(old, *[committed(n) for n in range(10)])
        new = await two.take()
        await two.store(new, committed(77))
        with pytest.raises(Refused):
            await old.merge(at_once)
        assert await offsets(two) == {0: 77}

    play(scenario())


def test_a_merge_of_many_entries_fits_into_packets_too() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await Player(zoo, 1).come()
        log = await one.take()
        await one.store(log, *[committed(n) for n in range(1500)])
        one.session.after = lost(3)
        before = len(zoo.history)
        await log.merge(at_once)
        assert max(map(len, zoo.history[before:])) <= 501
        assert await one.session.children(TREE.log(0)) == []
        assert await offsets(one) == {0: 1499}

    play(scenario())


def test_what_a_merge_did_not_come_to_remove_counts_no_more_and_is_swept_up() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await Player(zoo, 1).come(), await Player(zoo, 2).come()
        log = await one.take()
        await one.store(log, committed(5), committed(6))

        async def crash(what: Sequence[Operation] | str) -> None:
            if isinstance(what[-1], Delete):
                zoo.expire(one.session)

        one.session.before = crash
        with pytest.raises(SessionOver):
            await log.merge(at_once)
        assert await offsets(two) == {0: 6}
        next_log = await two.take()
        await two.store(next_log, committed(7))
        await next_log.merge(at_once)
        assert await two.session.children(TREE.log(0)) == []
        assert await offsets(two) == {0: 7}

    play(scenario())


def test_a_merge_that_is_sent_again_and_comes_late_undoes_no_later_one() -> None:
    """Its connection was lost, and the servers get to it when what it made has been replaced."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await Player(zoo, 1).come(), await Player(zoo, 2).come()
        log = await one.take()
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
        with pytest.raises(Refused):
            await one.session.transact(late)
        await two.take()
        assert await offsets(two) == {0: 1, 2: 2, 3: 3, 4: 4}

    play(scenario())


def test_a_merge_goes_on_where_the_last_one_was_not_heard_of() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await Player(zoo, 1).come()
        log = await one.take()
        await one.store(log, committed(1, 0))
        log._state_version += 1
        with pytest.raises(Refused):
            await log.merge(at_once)
        await log.merge(at_once)
        assert await offsets(one) == {0: 1}
        assert await one.session.children(TREE.log(0)) == []

    play(scenario())
