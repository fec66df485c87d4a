"""Topics, shards and registrations of a broker, on a ZooKeeper in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from broker.name_retries import NameRetries
from partage.broker.cluster import cluster_membership
from partage.broker.cluster.cluster_topic_admin import ClusterTopicAdmin
from partage.broker.topics.topic_admin import request_deadline_s
from partage.coordinator.records import OffsetRecord
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.store.shard_log import shard_of
from partage.store.zk_schema import GROUPS_SUFFIX, AppliedDoc, BrokerDoc, TopicsDoc, decode, encode
from partage.store.zookeeper import Delete, Operation, SetData
from store.zk_fixture import PATHS, SHARDS, BrokerStores, committed, made, run

from .test_cluster_membership import WITHIN_S, MembershipFixture, run_scenario, until


def test_delete_topic_waits_for_durable_offset_deletion() -> None:
    async def scenario(place: MembershipFixture) -> None:
        changes = ClusterTopicAdmin(place.cluster, place.hosted)
        await changes.create("t", 1, {}, [])
        host = await place.owns()
        commit = OffsetRecord(group_id="g", topic="t", partition=0, offset=5, commit_ms=0)
        shard = shard_of("g", SHARDS)
        host.shard.apply(commit)
        is_free = asyncio.Event()

        async def busy(what: Sequence[Operation] | str) -> None:
            if not isinstance(what, str) and any("/log/" in one.path for one in what):
                await is_free.wait()

        place.session.before = busy
        deleting = asyncio.create_task(changes.delete("t"))
        await until(lambda: place.hosted.topic("t") is None)
        await place.turns()
        assert not deleting.done()
        applied = place.zoo.nodes[PATHS.applied_by(1)].version
        is_free.set()
        assert not isinstance(await deleting, Refusal)
        assert place.zoo.nodes[PATHS.applied_by(1)].version == applied + 1
        assert len(await place.player.session.children(PATHS.log(shard))) == 1

    run_scenario(scenario)


def test_topic_change_waits_for_new_broker() -> None:
    """Even if this broker has not seen it yet: the new broker may use the old topics."""

    async def scenario(place: MembershipFixture) -> None:
        is_free = asyncio.Event()

        async def look_later(what: Sequence[Operation] | str) -> None:
            if what == PATHS.shards:
                await is_free.wait()

        place.session.before = look_later
        two = await BrokerStores(place.zoo, 2).register()
        changing = asyncio.create_task(
            ClusterTopicAdmin(place.cluster, place.hosted).create("t", 1, {}, [1])
        )
        await place.turns()
        assert not changing.done()
        await two.topics.refresh()
        await two.topics.publish_applied(AppliedDoc(value=two.topics.version))
        assert not isinstance(await changing, Refusal)
        is_free.set()

    run_scenario(scenario)


async def killed_with_a_commit(place: MembershipFixture) -> BrokerStores:
    """Broker 2 was killed, its session is alive; its group g has committed offset 5 of topic t."""
    await ClusterTopicAdmin(place.cluster, place.hosted).create("t", 1, {}, [1])
    await place.owns()
    two = await BrokerStores(place.zoo, 2).register()
    shard = shard_of("g", SHARDS)
    assert await two.store(await two.acquire(shard), committed(5)) == [None]
    await until(lambda: not place.cluster.owns(shard))
    return two


def test_recreate_topic_waits_for_dead_brokers_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its shard is taken over after its session has expired; until then no new topic may have the
    name.
    """
    monkeypatch.setattr(cluster_membership, "_APPLY_TIMEOUT_S", 0.01)

    async def scenario(place: MembershipFixture) -> None:
        two = await killed_with_a_commit(place)
        changes = ClusterTopicAdmin(place.cluster, place.hosted)
        assert not isinstance(await changes.delete("t"), Refusal)
        retries = NameRetries(monkeypatch)
        making = asyncio.create_task(changes.create("t", 1, {}, [1]))
        await retries.wait(3)
        assert not making.done()
        place.zoo.expire(two.session)
        assert not isinstance(await making, Refusal)
        host = await place.owns()
        assert host.shard.offsets.get("g", {}) == {}
        assert await place.player.session.children(PATHS.tombstones) == []

    run_scenario(scenario)


def test_dead_brokers_groups_offsets_are_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker that deleted the topic could not wait for it."""
    monkeypatch.setattr(cluster_membership, "_APPLY_TIMEOUT_S", 0.01)
    monkeypatch.setattr(cluster_membership, "_REFRESH_INTERVAL_S", 0.05)

    async def scenario(place: MembershipFixture) -> None:
        two = await killed_with_a_commit(place)
        assert not isinstance(
            await ClusterTopicAdmin(place.cluster, place.hosted).delete("t"), Refusal
        )
        session = place.player.session
        assert any(
            name.endswith(GROUPS_SUFFIX) for name in await session.children(PATHS.tombstones)
        )
        place.zoo.expire(two.session)
        async with asyncio.timeout(WITHIN_S / 4):
            while await session.children(PATHS.tombstones):  # noqa: ASYNC110 - it is far away
                await asyncio.sleep(0.01)

    run_scenario(scenario)


def test_recreate_topic_waits_for_unapplied_deletion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would accept commits for the new topic, and delete them when it applies the deletion."""
    monkeypatch.setattr(cluster_membership, "_APPLY_TIMEOUT_S", 0.01)

    async def scenario(place: MembershipFixture) -> None:
        two = await killed_with_a_commit(place)
        await two.refresh()
        await two.roster.acquire(two.roster.plan_changes()[0])
        changes = ClusterTopicAdmin(place.cluster, place.hosted)
        assert not isinstance(await changes.delete("t"), Refusal)
        refused = await changes.create("t", 1, {}, [1], request_deadline_s(0))
        assert isinstance(refused, Refusal)
        assert refused.code is ErrorCode.REQUEST_TIMED_OUT
        assert "'t' was deleted" in refused.message
        await two.topics.refresh()
        version = two.topics.version
        await two.topics.publish_applied(AppliedDoc(value=version, forgot=version))
        assert isinstance(await changes.create("t", 1, {}, [1], request_deadline_s(0)), Refusal)
        epochs = {shard: two.roster.shards[shard].epoch for shard in two.roster.owned()}
        told = AppliedDoc(value=version, forgot=version, shards=epochs)
        await two.topics.publish_applied(told)
        assert not isinstance(await changes.create("t", 1, {}, [1]), Refusal)

    run_scenario(scenario)


def test_takeover_during_slow_topic_reconciliation() -> None:
    async def scenario(place: MembershipFixture) -> None:
        two = await BrokerStores(place.zoo, 2).register()
        await until(lambda: not all(place.cluster.owns(shard) for shard in range(SHARDS)))
        place.disk.occupy()
        try:
            await two.topics.put("t", made("11" * 16, 1), "n")
            assert await asyncio.to_thread(place.disk.asked.wait, WITHIN_S)
            place.zoo.expire(two.session)
            await until(lambda: all(place.cluster.owns(shard) for shard in range(SHARDS)))
            assert place.hosted.topic("t") is None
        finally:
            place.disk.free()
        await until(lambda: place.hosted.topic("t"))

    run_scenario(scenario)


def test_reconciliation_failure_stops_broker() -> None:
    async def scenario(place: MembershipFixture) -> None:
        two = await BrokerStores(place.zoo, 2).register()
        await two.topics.put("t", made("11" * 16, 2), "n1")
        await until(lambda: place.hosted.topic("t"))
        touch = SetData(PATHS.topics, encode(TopicsDoc(recent=("t",), nonces=("n2",))))
        await two.session.transact([touch, SetData(PATHS.topic("t"), b"what is this?")])
        assert "topics/t in ZooKeeper cannot be decoded" in str(await place.fatal)
        assert not any(place.cluster.owns(shard) for shard in range(SHARDS))

    run_scenario(scenario)


async def topics_are_read_later(place: MembershipFixture) -> asyncio.Event:
    """Return an event; broker 1 reads and applies the topics only after it is set."""
    is_free = asyncio.Event()

    async def wait(what: Sequence[Operation] | str) -> None:
        if what == PATHS.topics:
            await is_free.wait()

    place.before = wait
    return is_free


def is_registered(place: MembershipFixture) -> bool:
    return PATHS.broker(1) in place.zoo.nodes


def is_ready(place: MembershipFixture) -> bool:
    return decode(PATHS.broker(1), place.zoo.nodes[PATHS.broker(1)].data, BrokerDoc).is_ready


def test_new_broker_is_ready_after_applying_topics() -> None:
    async def played() -> None:
        place = MembershipFixture()
        is_free = await topics_are_read_later(place)
        coming = asyncio.create_task(place.start())
        await until(lambda: hasattr(place, "cluster") and is_registered(place))
        await place.turns()
        assert not is_ready(place)
        assert not coming.done()
        is_free.set()
        await coming
        assert is_ready(place)
        await place.owns()
        await place.leave()

    run(asyncio.wait_for(played(), WITHIN_S))


def test_reregistered_broker_applies_topics_before_takeover() -> None:
    """While it was not registered, no broker waited for it: a name may belong to a new topic."""

    async def scenario(place: MembershipFixture) -> None:
        await place.owns()
        shard = PATHS.shard(shard_of("g", SHARDS))
        taken = place.zoo.nodes[shard].version
        is_free = await topics_are_read_later(place)
        place.session.before = place.before
        await place.player.session.transact([Delete(PATHS.broker(1))])
        await until(lambda: is_registered(place))
        await place.turns()
        assert not is_ready(place)
        assert place.zoo.nodes[shard].version == taken
        is_free.set()
        await until(lambda: place.zoo.nodes[shard].version > taken)
        assert is_ready(place)
        await place.owns()

    run_scenario(scenario)
