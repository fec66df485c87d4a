"""A shard's log in ZooKeeper: writes of an owner, and reads of the next one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from partage.store.memory import MemoryZooKeeper, lose_transactions
from partage.store.shared_log import CHUNK_BYTES
from partage.store.write_batcher import ShardFencedError
from partage.store.zk_schema import ForeignDataError
from partage.store.zookeeper import (
    TRANSACTION_BYTES_MAX,
    Check,
    Create,
    InDoubtError,
    Operation,
)
from partage.wire.primitives import MalformedError

from .zk_fixture import (
    PATHS,
    SHARDS,
    BrokerStores,
    at_once,
    committed,
    large_group,
    offsets,
    run,
    size_of,
)


def test_next_owner_loads_written_entries() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        log = await one.acquire()
        assert await one.store(log, committed(5), committed(6), committed(7, 1)) == [None] * 3
        await two.acquire()
        assert await offsets(two) == {0: 6, 1: 7}

    run(scenario())


def test_fenced_owner_cannot_write() -> None:
    """The same transaction checks the fence, so the owner's belief does not matter."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        old = await one.acquire()
        await one.store(old, committed(5))
        new = await two.acquire()
        (told,) = await one.store(old, committed(1))
        assert isinstance(told, ShardFencedError)
        assert await two.store(new, committed(9)) == [None]
        (told,) = await one.store(old, committed(1))
        assert isinstance(told, ShardFencedError)
        assert await offsets(two) == {0: 9}

    run(scenario())


def test_fenced_shard_does_not_block_others() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        lost_one, kept = await one.acquire(0), await one.acquire(1)
        await two.acquire(0)
        told: dict[str, object] = {}
        from partage.store.shard_log import encode_records

        for name, log in (("lost", lost_one), ("kept", kept)):
            (batch,) = encode_records([committed(5)], 0)

            def note(fault: object, name: str = name) -> None:
                told[name] = fault

            one.gatherer.enqueue(log, batch, note)
        await one.gatherer.flush()
        assert isinstance(told["lost"], ShardFencedError)
        assert told["kept"] is None
        assert await offsets(two, 1) == {0: 5}
        assert await offsets(two, 0) == {}

    run(scenario())


def test_entries_of_many_shards_share_transaction() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await BrokerStores(zoo, 1).register()
        logs = [await one.acquire(shard) for shard in range(SHARDS)]
        before = len(zoo.history)
        from partage.store.shard_log import encode_records

        for number in range(20):
            for log in logs:
                (batch,) = encode_records([committed(number)], 0)
                one.gatherer.enqueue(log, batch, one.told.append)
        await one.gatherer.flush()
        assert one.told == [None] * 80
        assert len(zoo.history) == before + 1
        assert sum(isinstance(op, Check) for op in zoo.history[-1]) == SHARDS

    run(scenario())


def test_lost_reply_retries_one_transaction() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await BrokerStores(zoo, 1).register()
        log = await one.acquire()
        asked: list[int] = []
        losing = lose_transactions(1)

        async def noted(what: Sequence[Operation] | str) -> None:
            if not isinstance(what, str):
                asked.append(len(what))

        one.session.before, one.session.after = noted, losing
        assert await one.store(log, *[committed(n) for n in range(50)]) == [None] * 50
        assert asked == [51, 51]
        assert await offsets(one) == {0: 49}

    run(scenario())


def test_transactions_fit_into_packet() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await BrokerStores(zoo, 1).register()
        log = await one.acquire()
        groups = [large_group(members) for members in (300, 1000, 1500, 5000)]
        assert await one.store(log, *groups, committed(5)) == [None] * 5
        await log.merge(at_once)
        assert max(map(size_of, zoo.history)) <= TRANSACTION_BYTES_MAX

    run(scenario())


def test_entry_larger_than_packet_is_loaded() -> None:
    """5,000 members take 1.3 MB: first the chunks, which are not visible, then the entry that
    refers to them.
    """

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        log = await one.acquire()
        group = large_group(5000)
        await one.store(log, group)
        assert len(one.session.server.nodes[PATHS.entry(0, 0)].data) < 1000
        await two.acquire()
        assert len((await two.read()).groups["large"].record.members) == 5000

    run(scenario())


@pytest.mark.parametrize("stop_after", range(5))
def test_crash_between_chunks_keeps_previous_data(stop_after: int) -> None:
    """The next owner removes the rest when it merges."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        log = await one.acquire()
        await one.store(log, committed(5))
        begun = 0

        async def crash(what: Sequence[Operation] | str) -> None:
            nonlocal begun
            if not isinstance(what, str):
                if begun == stop_after:
                    zoo.expire(one.session)
                begun += 1

        one.session.before = crash
        with pytest.raises(Exception, match="expired"):
            await one.store(log, large_group(5000))
        next_log = await two.acquire()
        assert "large" not in (await two.read()).groups
        assert await offsets(two) == {0: 5}
        assert await two.store(next_log, committed(6)) == [None]
        await next_log.merge(at_once)
        assert await offsets(two) == {0: 6}
        left = await two.session.children(PATHS.chunks(0))
        assert len(left) == 1, left

    run(scenario())


# Lost requests and replies.


def test_lost_reply_is_resolved() -> None:
    """The transaction was applied: it is not repeated, and succeeds."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await BrokerStores(zoo, 1).register()
        log = await one.acquire()
        one.session.after = lose_transactions()
        assert await one.store(log, committed(5), committed(6)) == [None, None]
        assert await one.session.children(PATHS.log(0)) == [f"{n:020}" for n in range(2)]
        assert await offsets(one) == {0: 6}

    run(scenario())


def test_lost_request_is_retried() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await BrokerStores(zoo, 1).register()
        log = await one.acquire()
        one.session.before = lose_transactions(3)
        assert await one.store(log, committed(5)) == [None]
        assert await offsets(one) == {0: 5}

    run(scenario())


def test_in_doubt_then_fenced() -> None:
    """The write may have been applied, and was; but it is not acknowledged."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        log = await one.acquire()

        async def lose_and_depose(what: Sequence[Operation] | str) -> None:
            if not isinstance(what, str):
                one.session.after = lose_transactions(0)
                await two.acquire()
                raise InDoubtError("the connection was lost")

        one.session.after = lose_and_depose
        (told,) = await one.store(log, committed(5))
        assert isinstance(told, ShardFencedError)
        assert await offsets(two) == {0: 5}

    run(scenario())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(8))
def test_any_transaction_in_doubt(when: str, nth: int) -> None:
    """Taking a shard, large entries, and merging: each request or reply may be lost."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await BrokerStores(zoo, 1).register()
        begun = 0

        async def losing(what: Sequence[Operation] | str) -> None:
            nonlocal begun
            if not isinstance(what, str):
                begun += 1
                if begun == nth + 1:
                    raise InDoubtError("the connection was lost")

        setattr(one.session, when, losing)
        log = await one.acquire()
        assert await one.store(log, committed(5), large_group(5000), committed(6)) == [None] * 3
        await log.merge(at_once)
        assert await one.store(log, committed(7)) == [None]
        assert begun > nth
        shard = await one.read()
        assert await offsets(one) == {0: 7}
        assert len(shard.groups["large"].record.members) == 5000

    run(scenario())


# Damaged data.


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (PATHS.entry(0, 1), None),
        (PATHS.entry(0, 1), b"\x00damaged"),
        (PATHS.entry(0, 1), b"\x05\x00\x00\x00\x00"),
        (PATHS.chunk(0, "1-1", 0), None),
        (PATHS.chunk(0, "1-1", 0), b"shorter"),
        (PATHS.state(0), None),
        (PATHS.state(0), b"{"),
    ],
)
def test_missing_or_damaged_data_raises_malformed(path: str, content: bytes | None) -> None:
    async def scenario() -> None:
        from partage.store.zk_schema import ForeignDataError

        zoo = MemoryZooKeeper()
        one = await BrokerStores(zoo, 1).register()
        log = await one.acquire()
        await one.store(log, committed(1))
        await one.store(log, committed(2))
        await one.store(log, large_group(5000))
        await one.store(log, committed(3))
        node = zoo.nodes.pop(path)
        if content is not None:
            zoo.nodes[path] = type(node)(data=content, version=9)
        with pytest.raises((MalformedError, ForeignDataError)):
            await one.read()

    run(scenario())


assert CHUNK_BYTES < TRANSACTION_BYTES_MAX


def test_foreign_entry_error_names_path() -> None:
    """Also when orphans are removed."""

    async def scenario() -> None:
        one = await BrokerStores(MemoryZooKeeper(), 1).register()
        log = await one.acquire()
        await one.store(log, committed(5))
        await one.session.transact([Create(f"{PATHS.log(0)}/backup")])
        for asked in (log.load, log.remove_orphans):
            with pytest.raises(
                ForeignDataError, match="/a/cluster/shards/0/log/backup in ZooKeeper"
            ):
                await asked()

    run(scenario())
