"""Topic changes that clients send to a broker of a cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from partage.broker.apis.topics import create_topics
from partage.broker.cluster.cluster_topic_admin import ClusterTopicAdmin
from partage.broker.configs.dynamic_configs import DynamicConfigs
from partage.broker.topics.log_manager import LocalTopic
from partage.broker.topics.partition import Partition
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.store.group_events import TOPIC, TOPIC_CONFIGS
from partage.store.shared_topics import SharedTopics
from partage.store.zk_schema import AppliedDoc
from partage.wire.apis.create_topics import CreateTopicsRequest, CreateTopicsResponse
from store.zk_fixture import BrokerStores, made, run

from .name_retries import NameRetries
from .requests import creatable_topic
from .test_topic_reconciler import BrokerFixture

#: Upper limit for requests that must not wait; much less than any wait for another broker.
AT_ONCE_S = 4.0


class AdminFixture(BrokerFixture):
    """A broker whose clients change topics; ``other`` is another broker of the cluster."""

    async def start(self) -> AdminFixture:
        await super().start()
        self.other = await BrokerStores(self.zoo, 2).register()
        await self.other.topics.refresh()
        self.changes = ClusterTopicAdmin(self, self.hosted)
        return self

    def shared_topics(self) -> SharedTopics:
        return self.topics

    def live_broker_ids(self) -> list[int]:
        return [1]

    async def wait_applied(self) -> None:
        await self.reconcile()

    async def bury(self, *names: str) -> None:
        """Delete topics of these names, without the other broker having applied it."""
        for name in names:
            await self.changes.create(name, 1, {}, [])
            await self.changes.delete(name)

    async def other_follows(self) -> None:
        await self.other.topics.refresh()
        version = self.other.topics.version
        await self.other.topics.publish_applied(AppliedDoc(value=version, forgot=version))

    def placed(self) -> dict[str, tuple[int, ...]]:
        return {name: topic.brokers for name, topic in self.topics.topics.items()}


@pytest.mark.parametrize("name", ["__consumer_offsets", "__group_events", "__transaction_state"])
def test_internal_topics_cannot_be_created_or_deleted(name: str) -> None:
    async def scenario() -> None:
        one = await AdminFixture().start()
        one.hosted.settings = msgspec.structs.replace(one.hosted.settings, group_events=False)
        for outcome in (
            await one.changes.create(name, 1, {}, []),
            await one.changes.auto_create(name),
            await one.changes.delete(name),
        ):
            assert isinstance(outcome, Refusal)
            assert outcome.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert one.placed() == {}

    run(scenario())


class TopicRequests:
    """A CreateTopics request, with the parts that its handler uses."""

    def __init__(self, *names: str, timeout_ms: int) -> None:
        topics = [creatable_topic(name) for name in names]
        self.message = CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms)

    async def codes(self, one: AdminFixture) -> dict[str, int]:
        """Return the error code for each name."""
        inbound: Any = self
        neighbours: Any = None  # for assignments
        configs = DynamicConfigs(one.hosted.settings, one.hosted.use_settings)
        await create_topics(inbound, one.hosted, neighbours, one.changes, configs)
        return {each.name: each.error_code for each in self.response.topics}

    def respond(self, message: CreateTopicsResponse) -> None:
        self.response = message


def test_auto_create_does_not_wait() -> None:
    """The client's next requests would wait behind it, for example records for any topic."""

    async def scenario() -> None:
        one = await AdminFixture().start()
        await one.bury("x")
        missing = await asyncio.wait_for(one.changes.auto_create("x"), AT_ONCE_S)
        assert isinstance(missing, Refusal)
        assert missing.code is ErrorCode.LEADER_NOT_AVAILABLE
        assert "'x' was deleted" in missing.message
        await one.other_follows()
        assert isinstance(await one.changes.auto_create("x"), LocalTopic)

    run(scenario())


def test_create_topics_share_the_client_timeout() -> None:
    async def scenario() -> None:
        one = await AdminFixture().start()
        await one.bury("x", "y", "z")
        asking = TopicRequests("x", "y", "u", "z", timeout_ms=200)
        codes = await asyncio.wait_for(asking.codes(one), AT_ONCE_S)
        late = ErrorCode.REQUEST_TIMED_OUT
        assert codes == {"x": late, "y": late, "u": ErrorCode.NONE, "z": late}

    run(scenario())


def test_create_topic_waits_for_client_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        one = await AdminFixture().start()
        await one.bury("x", "y")
        retries = NameRetries(monkeypatch)
        asking = asyncio.create_task(TopicRequests("x", "y", timeout_ms=60_000).codes(one))
        await retries.wait(3)
        assert not asking.done()
        await one.other_follows()
        assert await asking == {"x": ErrorCode.NONE, "y": ErrorCode.NONE}

    run(scenario())


@pytest.mark.parametrize("is_created", [True, False])
def test_create_topic_slow_peers_do_not_fail_it(
    monkeypatch: pytest.MonkeyPatch, is_created: bool
) -> None:
    """For example if its creation had to wait for groups to delete offsets."""

    async def scenario() -> None:
        one = await AdminFixture().start()

        async def take_long() -> None:
            await one.reconcile()
            await asyncio.Event().wait()

        monkeypatch.setattr(one, "wait_applied", take_long)
        if is_created:
            codes = await asyncio.wait_for(TopicRequests("x", timeout_ms=100).codes(one), AT_ONCE_S)
            assert codes == {"x": ErrorCode.NONE}
        else:
            missing = one.changes.auto_create("x")
            assert isinstance(await asyncio.wait_for(missing, AT_ONCE_S), LocalTopic)

    run(scenario())


def test_create_topic_not_yet_applied_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client retries; likewise if another request was faster."""

    async def scenario() -> None:
        one = await AdminFixture().start()
        monkeypatch.setattr(one, "wait_applied", asyncio.Event().wait)
        for _ in range(2):
            missing = await asyncio.wait_for(one.changes.auto_create("x"), AT_ONCE_S)
            assert isinstance(missing, Refusal)
            assert missing.code is ErrorCode.LEADER_NOT_AVAILABLE
            assert "stored in ZooKeeper" in missing.message
        await one.reconcile()
        assert isinstance(await one.changes.auto_create("x"), LocalTopic)

    run(scenario())


def test_add_partitions_concurrent_keeps_requested_count() -> None:
    """Another broker has added a partition that this broker has not seen yet."""

    async def scenario() -> None:
        one = await AdminFixture().start()
        await one.changes.create("x", 2, {}, [])
        await one.other.topics.refresh()
        topic_id = one.topics.topics["x"].id
        await one.other.topics.put("x", made(topic_id, 1, 1, 2), "n")
        grown = await one.changes.add_partitions("x", 4, [1, 2])
        assert isinstance(grown, Refusal)
        assert grown.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert one.placed() == {"x": (1, 1, 2)}

    run(scenario())


def test_events_topic_has_one_partition_per_broker() -> None:
    """If two brokers create theirs at the same time, one change is based on the other."""

    async def scenario() -> None:
        one = await AdminFixture().start()
        two = one.other.topics
        is_first = True

        async def quicker(operations: object) -> None:
            nonlocal is_first
            if is_first and isinstance(operations, list):
                is_first = False
                await two.put(TOPIC, made("22" * 16, 2), "n")

        one.player.session.before = quicker
        own = await one.changes.get_or_create_own_partition(TOPIC, TOPIC_CONFIGS)
        assert isinstance(own, Partition)
        assert not is_first
        assert own.name == f"{TOPIC}-1"
        assert one.placed() == {TOPIC: (2, 1)}
        assert await one.changes.get_or_create_own_partition(TOPIC, TOPIC_CONFIGS) is own
        assert one.placed() == {TOPIC: (2, 1)}

    run(scenario())


def test_events_topic_is_created_on_metadata_request() -> None:
    async def scenario() -> None:
        one = await AdminFixture().start()
        made = await one.changes.auto_create(TOPIC)
        assert isinstance(made, LocalTopic)
        assert made.topic.configs == TOPIC_CONFIGS
        assert one.placed() == {TOPIC: (1,)}

    run(scenario())


def test_own_partition_not_yet_applied_is_not_added_twice() -> None:
    """For example if the broker ended before it applied the change."""

    async def scenario() -> None:
        one = await AdminFixture().start()
        await one.other.topics.put(TOPIC, made("22" * 16, 2, 1), "n")
        own = await one.changes.get_or_create_own_partition(TOPIC, TOPIC_CONFIGS)
        assert isinstance(own, Partition)
        assert one.placed() == {TOPIC: (2, 1)}

    run(scenario())


def test_own_partition_name_collision_is_refused() -> None:
    async def scenario() -> None:
        one = await AdminFixture().start()
        await one.changes.create("__group.events", 1, {}, [])
        own = await one.changes.get_or_create_own_partition(TOPIC, TOPIC_CONFIGS)
        assert isinstance(own, Refusal)
        assert "collides with" in own.message
        await one.reconcile()
        assert await one.topics.is_applied_by([1], one.topics.version)

    run(scenario())
