"""A broker applies the topics of its cluster, with interruptions and concurrent changes."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Sequence

import pytest

from partage.broker.clock import Clock
from partage.broker.cluster.topic_reconciler import TopicReconciler
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.log_writer import LogWriter
from partage.log.catalogue.topic_catalogue import TopicCatalogue
from partage.log.memory_disk import MemoryDisk
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.model.settings import BrokerSettings
from partage.store.memory import MemoryZooKeeper
from partage.store.zk_schema import AppliedDoc, TombstoneDoc, decode, encode
from partage.store.zookeeper import Create, Operation
from shields import shield
from store.zk_fixture import PATHS, BrokerStores, made, nothing, run

PATIENCE_S = 30
X, Y, Z = "11" * 16, "22" * 16, "33" * 16


def fatal(error: BaseException) -> None:
    raise error


class BlockingDisk(MemoryDisk):
    """A disk whose renames block while it is ``busy``; ``asked`` is set when one is blocked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self._is_free = threading.Event()
        self._is_free.set()

    def occupy(self) -> None:
        self._is_free.clear()

    def free(self) -> None:
        self._is_free.set()

    def rename(self, old: str, new: str) -> None:
        if not self._is_free.is_set():
            self.asked.set()
            assert self._is_free.wait(PATIENCE_S)
        super().rename(old, new)


class BrokerFixture:
    """Broker 1: its topics and its view of the cluster."""

    async def start(self) -> BrokerFixture:
        self.disk = BlockingDisk()
        writer = LogWriter(self.disk, sync=False, inline=True)
        settings = BrokerSettings(node_id=1)
        self.hosted = LogManager(
            self.disk, writer, Clock(), settings, fatal, has_offsets_topic=False
        )
        await self.hosted.open()
        self.zoo = MemoryZooKeeper()
        self.player = await BrokerStores(self.zoo, 1).register()
        self.topics = self.player.topics
        await self.topics.refresh()
        self.forgotten: list[frozenset[str]] = []
        self.epochs: dict[int, int] = {}
        self.following = TopicReconciler(self.hosted, 1, self)
        return self

    def delete_topic_offsets(self, names: frozenset[str]) -> None:
        self.forgotten.append(names)

    async def wait_durable(self) -> None:
        """Return at once: there are no groups."""

    def caught_up_epochs(self) -> dict[int, int]:
        return self.epochs

    def applied(self) -> AppliedDoc:
        """Return the document that it published."""
        path = PATHS.applied_by(1)
        return decode(path, self.zoo.nodes[path].data, AppliedDoc)

    async def reconcile(self) -> None:
        await self.following.reconcile(self.topics, nothing)

    async def begin_and_cancel(self) -> None:
        """Start a reconciliation on a blocked disk, and cancel the caller."""
        self.disk.occupy()
        begun = asyncio.create_task(self.reconcile())
        assert await asyncio.to_thread(self.disk.asked.wait, PATIENCE_S)
        begun.cancel()
        await asyncio.wait([begun])
        assert begun.cancelled()

    def on_disk(self) -> set[str]:
        return {topic.name for topic in TopicCatalogue.load(self.disk, 1)}


class FailingBrokerFixture(BrokerFixture):
    """A broker whose groups fail when a topic was removed."""

    async def wait_durable(self) -> None:
        raise LookupError


async def run_loop_turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_cancelled_deletion_finishes_before_tombstone_removal() -> None:
    async def scenario() -> None:
        one = await BrokerFixture().start()
        await one.topics.put("x", made(X, 1), "n1")
        await one.reconcile()
        await one.topics.delete("x", "n2")
        await one.begin_and_cancel()
        again = asyncio.create_task(one.reconcile())
        await run_loop_turns()
        assert await one.topics.tombstones() == [X]
        one.disk.free()
        await again
        assert await one.topics.tombstones() == []
        assert one.on_disk() == set()
        assert one.forgotten == [frozenset({"x"})]

    run(scenario())


def test_cancelled_reconciliation_that_fails_is_silent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(asyncio, "shield", shield)

    async def scenario() -> None:
        one = await FailingBrokerFixture().start()
        await one.topics.put("x", made(X, 1), "n1")
        await one.reconcile()
        await one.topics.delete("x", "n2")
        await one.begin_and_cancel()
        one.disk.free()
        await one.following.wait_idle()

    run(scenario())
    gc.collect()
    assert caplog.messages == []


def test_deleted_topic_never_seen_deletes_offsets() -> None:
    """A group that moved here from another broker may have committed offsets for it."""

    async def scenario() -> None:
        one = await BrokerFixture().start()
        two = await BrokerStores(one.zoo, 2).register()
        await two.topics.put("x", made(X, 2), "n1")
        await two.topics.delete("x", "n2")
        await one.reconcile()
        assert one.forgotten == [frozenset({"x"})]
        await one.reconcile()
        assert len(one.forgotten) == 1

    run(scenario())


async def deleted_unseen() -> tuple[BrokerFixture, BrokerStores]:
    """Brokers 1 and 2, and a tombstone of x: broker 1 never had x, 2 has not applied it."""
    one = await BrokerFixture().start()
    two = await BrokerStores(one.zoo, 2).register()
    await two.topics.put("x", made(X, 2), "n1")
    await two.topics.delete("x", "n2")
    await one.reconcile()
    assert await one.topics.reserved_names() == {"x"}
    return one, two


@pytest.mark.parametrize("is_here", [True, False])
def test_offsets_are_deleted_once_per_tombstone(is_here: bool) -> None:
    """Otherwise all offsets would be scanned each time, while a failed or slow broker keeps a
    tombstone.
    """

    async def scenario() -> None:
        one, two = await deleted_unseen()
        if is_here:
            await two.topics.put("z", made(Z, 1), "n3")
            await one.reconcile()
            await two.topics.delete("z", "n4")
            await one.reconcile()
        forgotten = list(one.forgotten)
        for n in range(3):
            await two.topics.put(f"y{n}", made(Y[:-1] + str(n), 1), f"m{n}")
            await one.reconcile()
        assert one.on_disk() == {"y0", "y1", "y2"}
        assert one.forgotten == forgotten
        assert forgotten == [frozenset({"x"})] + [frozenset({"z"})] * is_here

    run(scenario())


def test_new_session_deletes_offsets_again() -> None:
    """The state of the last session is discarded, and shards are loaded again."""

    async def scenario() -> None:
        one, _ = await deleted_unseen()
        one.topics = (await BrokerStores(one.zoo, 1, one.player.directory).register()).topics
        await one.reconcile()
        assert one.forgotten == [frozenset({"x"})] * 2

    run(scenario())


@pytest.mark.parametrize("is_dead", [True, False])
def test_name_is_released_when_all_brokers_caught_up(is_dead: bool) -> None:
    async def scenario() -> None:
        one, two = await deleted_unseen()
        version = one.topics.version
        if is_dead:
            one.zoo.expire(two.session)
        else:
            said = AppliedDoc(value=version, forgot=version)
            assert await two.topics.publish_applied(said)
        await one.reconcile()
        assert one.topics.version == version
        assert await one.topics.reserved_names() == set()
        read = []

        async def reading(what: Sequence[Operation] | str) -> None:
            read.append(what)

        one.player.session.before = reading
        await one.reconcile()
        assert read == [PATHS.topics]

    run(scenario())


def test_existing_topic_with_reserved_name_keeps_offsets() -> None:
    """No broker creates such a topic, but if it exists, it may have committed offsets."""

    async def scenario() -> None:
        one = await BrokerFixture().start()
        two = await BrokerStores(one.zoo, 2).register()
        await two.topics.put("x", made(Y, 2), "n1")
        grave = encode(TombstoneDoc(name="x", version=two.topics.version))
        await two.session.transact([Create(PATHS.groups_tombstone(X), grave)])
        await one.reconcile()
        await two.topics.put("y", made(Z, 2), "n2")
        await one.reconcile()
        assert one.on_disk() == {"x", "y"}
        assert one.forgotten == []

    run(scenario())


def test_shards_loaded_later_are_published() -> None:
    """But nothing is written if nothing has changed."""

    async def scenario() -> None:
        one = await BrokerFixture().start()
        await one.reconcile()
        told = one.zoo.nodes[PATHS.applied_by(1)].version
        await one.reconcile()
        assert one.zoo.nodes[PATHS.applied_by(1)].version == told
        one.epochs = {3: 7}
        await one.reconcile()
        assert one.applied() == AppliedDoc(
            value=one.topics.version, forgot=one.topics.version, shards={3: 7}
        )

    run(scenario())


def test_failed_deletion_is_not_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        one = await BrokerFixture().start()
        await one.topics.put("x", made(X, 1), "n1")
        await one.reconcile()
        before = one.topics.version
        await one.topics.delete("x", "n2")

        async def refuse(name: str) -> Refusal:
            return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"{name} is not removed")

        with monkeypatch.context() as patch:
            patch.setattr(one.hosted, "delete", refuse)
            await one.reconcile()
        assert one.applied().forgot == before
        assert one.forgotten == []
        await one.reconcile()
        assert one.applied().forgot == one.topics.version
        assert one.forgotten == [frozenset({"x"})]

    run(scenario())


def test_cancelled_creation_finishes() -> None:
    async def scenario() -> None:
        one = await BrokerFixture().start()
        await one.topics.put("x", made(X, 1), "n1")
        await one.begin_and_cancel()
        one.disk.free()
        await one.reconcile()
        assert one.hosted.topic("x") is not None
        assert one.on_disk() == {"x"}
        assert await one.topics.is_applied_by([1], one.topics.version)

    run(scenario())


def test_wait_idle_waits_for_running_work() -> None:
    async def scenario() -> None:
        one = await BrokerFixture().start()
        await one.topics.put("x", made(X, 1), "n1")
        await one.begin_and_cancel()
        one.zoo.expire(one.player.session)
        ending = asyncio.create_task(one.following.wait_idle())
        await run_loop_turns()
        assert not ending.done()
        one.disk.free()
        await ending
        assert one.on_disk() == {"x"}

    run(scenario())


@pytest.mark.parametrize("deleted", ["x", "y"])
def test_topic_deleted_during_reconcile_is_removed_next(deleted: str) -> None:
    """While the tombstones are read, ``x`` is already on the disk and ``y`` is not."""

    async def scenario() -> None:
        one = await BrokerFixture().start()
        await one.topics.put("x", made(X, 1), "n1")
        await one.reconcile()
        await one.topics.put("y", made(Y, 1), "n2")
        is_first = True

        async def delete(what: Sequence[Operation] | str) -> None:
            nonlocal is_first
            if what == PATHS.tombstones and is_first:
                is_first = False
                await one.topics.delete(deleted, "n3")

        one.player.session.before = delete
        await one.reconcile()
        version = one.topics.version
        assert not await one.topics.is_applied_by([1], version)
        await one.reconcile()
        assert await one.topics.is_applied_by([1], version)
        assert one.on_disk() == {"x", "y"} - {deleted}
        assert await one.topics.tombstones() == []
        assert set(one.forgotten) == {frozenset({deleted})}

    run(scenario())
