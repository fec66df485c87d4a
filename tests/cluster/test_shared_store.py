"""A shard's host whose shard another broker can take over: its responses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from broker.group_requests import commit_request, join_request, sync_request
from broker.shard_requests import ask
from partage.broker.clock import Clock
from partage.broker.cluster import session_writer
from partage.broker.cluster.session_writer import SessionWriter
from partage.broker.cluster.shared_store import SharedStore
from partage.broker.coordination.shard_host import ShardHost
from partage.coordinator.invariants import durable_state
from partage.coordinator.records import Record
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.store.memory import MemoryZooKeeper
from partage.store.shared_log import SharedLog
from partage.store.write_batcher import WriteCallback
from partage.store.zookeeper import Create, Operation, ZNode
from partage.wire.api import Api
from partage.wire.apis.join_group import JOIN_GROUP, JoinGroupResponse
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from partage.wire.apis.sync_group import SYNC_GROUP
from store.group_conversions import NOW_MS, conversions, states
from store.zk_fixture import BrokerStores, at_once

from .group_client import error_of

SETTINGS = GroupSettings(initial_rebalance_delay_ms=0)
WITHIN_S = 30


class StoreFixture:
    """A fixture for one store: one shard, and a lease that tests switch on and off."""

    def __init__(self) -> None:
        self.has_lease = True
        self.retaken = 0
        self.host: ShardHost

    async def open(self, zoo: MemoryZooKeeper | None = None, broker_id: int = 1) -> StoreFixture:
        self.zoo = zoo or MemoryZooKeeper()
        self.player = await BrokerStores(self.zoo, broker_id).register()
        self.other = await BrokerStores(self.zoo, broker_id + 1).register()
        loop = asyncio.get_running_loop()
        self.writing = SessionWriter(self.player.session, loop.create_task, self.fatal)
        self.clock = Clock()
        self.store = SharedStore(self, 0)
        self.host = ShardHost("the shard", self.store, SETTINGS, self.clock, lambda notice: None)
        self.host.resign()
        return self

    @staticmethod
    def fatal(error: BaseException) -> None:
        raise error

    async def acquire(self) -> None:
        self.store.log = await self.player.acquire()
        self.host.load()
        await asyncio.wait_for(self.host.wait_loaded(), WITHIN_S)

    # Implementation of `ShardLogAccess`.

    def append(self, log: SharedLog, batch: bytes, written: WriteCallback) -> None:
        self.writing.append(log, batch, written)

    def on_deposed(self, log: SharedLog) -> None:
        self.store.log = None
        self.host.resign()

    def may_answer(self) -> bool:
        return self.has_lease

    async def reacquire(self, shard: int) -> SharedLog:
        self.retaken += 1
        return await self.player.acquire(shard)

    # Requests of clients.

    def ask(self, api: Api[Any, Any], version: int, message: Any) -> asyncio.Future[Any]:
        return ask(self.host, api, version, message, self.clock.now_ms())

    def commit(self, offset: int) -> asyncio.Future[Any]:
        return self.ask(OFFSET_COMMIT, 8, commit_request("g", "t", {0: offset}))

    async def answer(self, offset: int) -> int:
        return error_of(await asyncio.wait_for(self.commit(offset), WITHIN_S))

    async def is_stored(self, offset: int) -> None:
        """Return once ZooKeeper has the offset."""
        while True:
            found = (await self.other.read()).offsets.get("g", {})
            if found and found["t", 0].offset == offset:
                return
            await asyncio.sleep(0)


def test_only_owner_responds() -> None:
    async def scenario() -> None:
        holder = await StoreFixture().open()
        assert await holder.answer(1) == 16
        await holder.acquire()
        assert await holder.answer(2) == 0
        await holder.is_stored(2)
        holder.host.close()

    asyncio.run(scenario())


def test_commits_within_tick_share_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits of one loop turn share an entry; those of several turns share a transaction."""
    monkeypatch.setattr(session_writer, "_TICK_S", 0.3)

    async def scenario() -> None:
        holder = await StoreFixture().open()
        await holder.acquire()
        before = len(holder.zoo.history)
        waiting = []
        for offset in range(20):
            waiting.append(holder.commit(offset))
            for _ in range(3):
                await asyncio.sleep(0)
        answers = await asyncio.wait_for(asyncio.gather(*waiting), WITHIN_S)
        assert [error_of(answer) for answer in answers] == [0] * 20
        (written,) = holder.zoo.history[before:]
        assert sum(isinstance(each, Create) for each in written) > 1
        holder.host.close()

    asyncio.run(scenario())


class RecordingZooKeeper(MemoryZooKeeper):
    """A ZooKeeper that keeps its content after each transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.contents: list[dict[str, ZNode]] = []

    def transact(self, operations: Sequence[Operation], session_id: int) -> None:
        super().transact(operations, session_id)
        self.contents.append(self.nodes)


@pytest.mark.parametrize("user_bytes", [1_000, 8_000])
def test_crash_keeps_whole_conversions(user_bytes: int) -> None:
    """The owner dies after each transaction; 8,000 bytes for each member need chunks."""

    async def scenario() -> None:
        for conversion in conversions(60, user_bytes):
            zoo = RecordingZooKeeper()
            holder = await StoreFixture().open(zoo)
            await holder.acquire()

            async def append(
                records: list[Record], ends: list[int], store: SharedStore = holder.store
            ) -> None:
                stored = asyncio.get_running_loop().create_future()
                store.append(records, NOW_MS, stored.set_result, ends)
                assert await asyncio.wait_for(stored, WITHIN_S) is ErrorCode.NONE

            await append(conversion.earlier, [len(conversion.earlier)])
            before = len(zoo.contents)
            await append(conversion.records, conversion.event_ends)
            old, new = states(conversion)
            found = []
            for nodes in zoo.contents[before - 1 :]:
                zoo.nodes = nodes
                shard = await holder.other.read()
                found.append(durable_state(shard)[0].get("g"))
            assert found == [old] * (len(found) - 1) + [new]
            has_chunks = any("/chunks/" in path for path in zoo.nodes)
            assert has_chunks == (user_bytes == 8_000)
            holder.host.close()

    asyncio.run(scenario())


def test_invalid_lease_defers_responses() -> None:
    async def scenario() -> None:
        holder = await StoreFixture().open()
        await holder.acquire()
        holder.has_lease = False
        waiting = holder.commit(3)
        await holder.is_stored(3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        holder.has_lease = True
        holder.host.flush()
        assert error_of(await asyncio.wait_for(waiting, WITHIN_S)) == 0
        holder.host.close()

    asyncio.run(scenario())


def test_lost_shard_replaces_deferred_responses() -> None:
    async def scenario() -> None:
        holder = await StoreFixture().open()
        await holder.acquire()
        holder.has_lease = False
        waiting = holder.commit(3)
        await holder.is_stored(3)
        holder.on_deposed(await holder.other.acquire())
        assert error_of(await asyncio.wait_for(waiting, WITHIN_S)) == 16
        holder.host.close()

    asyncio.run(scenario())


def test_deposed_owner_is_detected_by_write() -> None:
    async def scenario() -> None:
        holder = await StoreFixture().open()
        await holder.acquire()
        assert await holder.answer(1) == 0
        log = await holder.other.acquire()
        assert await holder.answer(2) == 16
        assert await holder.answer(3) == 16
        assert await holder.other.store(log) == []
        await holder.is_stored(1)
        holder.host.close()

    asyncio.run(scenario())


def test_reopen_after_failure_uses_new_epoch() -> None:
    """Unfinished writes of the old epoch are refused."""

    async def scenario() -> None:
        holder = await StoreFixture().open()
        await holder.acquire()
        assert await holder.answer(1) == 0
        first = holder.store.log
        holder.host.unload()
        holder.host.load()
        await asyncio.wait_for(holder.host.wait_loaded(), WITHIN_S)
        assert holder.retaken == 1
        assert first is not None
        assert holder.store.log is not None
        assert holder.store.log.epoch == first.epoch + 1
        assert await holder.answer(2) == 0
        await holder.is_stored(2)
        holder.host.close()

    asyncio.run(scenario())


def test_merged_commits_are_loaded() -> None:
    async def scenario() -> None:
        holder = await StoreFixture().open()
        await holder.acquire()
        for offset in range(200):
            assert await holder.answer(offset) == 0
        entries = await holder.player.session.children("/a/cluster/shards/0/log")
        assert len(entries) < 200
        await holder.is_stored(199)
        holder.host.close()

    asyncio.run(scenario())


# The four points of "Handling Coordinator Failures", with injected faults.


class CrashingStore(StoreFixture):
    """A coordinator that dies at a later transaction: before it, or after it was applied."""

    def die(self, when: str) -> None:
        async def dying(what: object) -> None:
            if not isinstance(what, str):
                self.zoo.expire(self.player.session)
                self.host.close()
                self.is_dead.set()

        self.is_dead = asyncio.Event()
        setattr(self.player.session, when, dying)


async def join(holder: StoreFixture, member_id: str = "") -> JoinGroupResponse:
    answer: JoinGroupResponse = await asyncio.wait_for(joins(holder, member_id), WITHIN_S)
    return answer


def joins(holder: StoreFixture, member_id: str) -> asyncio.Future[Any]:
    return holder.ask(JOIN_GROUP, 9, join_request("g", member_id, session_timeout_ms=300_000))


def sync(holder: StoreFixture, member: JoinGroupResponse) -> asyncio.Future[Any]:
    return holder.ask(SYNC_GROUP, 5, sync_request("g", member, {member.member_id: b"all"}))


@pytest.mark.parametrize(
    ("what", "when", "generation"),
    [
        ("generation", "before", 1),
        ("generation", "after", 2),
        ("sync", "before", 1),
        ("sync", "after", 1),
    ],
)
def test_coordinator_failure_points(what: str, when: str, generation: int) -> None:
    """No client has a response of the failed one; the next coordinator has the stored state."""

    async def scenario() -> None:
        victim = CrashingStore()
        await victim.open()
        await victim.acquire()
        member_id = (await join(victim)).member_id  # an id was generated, and nothing stored
        if what == "sync":
            member = await join(victim, member_id)
        victim.die(when)
        asked = sync(victim, member) if what == "sync" else joins(victim, member_id)
        await asyncio.wait_for(victim.is_dead.wait(), WITHIN_S)
        assert not asked.done()
        heir = await StoreFixture().open(victim.zoo, 5)
        await heir.acquire()
        if what == "generation":
            member = await join(heir, member_id)
            assert member.error_code == (25 if when == "before" else 0)
            if when == "before":  # no client knows that generation, so it starts again
                member = await join(heir, (await join(heir)).member_id)
        assert member.generation_id == generation
        synced = await asyncio.wait_for(sync(heir, member), WITHIN_S)
        assert (synced.error_code, synced.assignment) == (0, b"all")
        heir.host.close()

    asyncio.run(scenario())


def test_next_owner_knows_epochs_of_transactional_producers() -> None:
    """Markers of former coordinators and of former producers stay refused."""

    async def scenario() -> None:
        holder = await StoreFixture().open()
        await holder.acquire()
        log = holder.store.log
        assert log is not None
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        holder.host.complete_transaction(7, 4, 9, is_commit=True, done=done.set_result)
        assert await asyncio.wait_for(done, WITHIN_S) is ErrorCode.NONE
        await log.merge(at_once)
        heir = await StoreFixture().open(holder.zoo, 5)
        await heir.acquire()
        for producers in (holder.host.producer_state, heir.host.producer_state):
            assert producers.coordinator_epoch(7) == 9
            codes = []
            for epoch, coordinator_epoch in ((3, 9), (4, 8), (4, 9)):
                refusal = producers.check_marker(7, epoch, coordinator_epoch, 0)
                codes.append(refusal and refusal.code)
            assert codes == [
                ErrorCode.INVALID_PRODUCER_EPOCH,
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                None,
            ]
        heir.host.close()
        holder.host.close()

    asyncio.run(scenario())


def test_durability_is_reported_false_once_the_shard_is_lost() -> None:
    async def scenario() -> None:
        holder = await StoreFixture().open()
        await holder.acquire()
        reports: list[bool] = []
        assert await holder.answer(1) == 0
        holder.host.call_when_durable(reports.append)
        await asyncio.sleep(0)
        assert reports == [True]
        waiting = holder.commit(2)
        holder.host.call_when_durable(reports.append)
        await asyncio.sleep(0)
        assert reports == [True]
        holder.on_deposed(await holder.other.acquire())
        await asyncio.wait_for(waiting, WITHIN_S)
        await asyncio.sleep(0)
        assert reports == [True, False]
        holder.host.close()

    asyncio.run(scenario())
