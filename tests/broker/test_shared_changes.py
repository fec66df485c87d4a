"""Changes of topics that clients ask a broker of a cluster for."""

from __future__ import annotations

import msgspec
import pytest

from partage.broker.cluster.shared_changes import SharedChanges
from partage.broker.hosted import HostedTopic
from partage.broker.partition import Partition
from partage.log.outcomes import Refusal
from partage.model.errors import ErrorCode
from partage.store.group_events import TOPIC, TOPIC_CONFIGS
from partage.store.shared_topics import SharedTopics
from store.zoo import Player, made, play

from .test_following import Follower


class Agreeing(Follower):
    """A broker whose clients change topics; ``other`` is another of the cluster."""

    async def come(self) -> Agreeing:
        await super().come()
        self.other = await Player(self.zoo, 2).come()
        await self.other.topics.refresh()
        self.changes = SharedChanges(self, self.hosted)
        return self

    def shared_topics(self) -> SharedTopics:
        return self.topics

    def up(self) -> list[int]:
        return [1]

    async def followed(self) -> None:
        await self.follow()

    def placed(self) -> dict[str, tuple[int, ...]]:
        return {name: topic.brokers for name, topic in self.topics.topics.items()}


@pytest.mark.parametrize("name", ["__consumer_offsets", "__group_events", "__transaction_state"])
def test_internal_topics_are_nobodys_to_create_or_delete(name: str) -> None:
    async def scenario() -> None:
        one = await Agreeing().come()
        one.hosted.settings = msgspec.structs.replace(one.hosted.settings, group_events=False)
        for outcome in (
            await one.changes.create(name, 1, {}, []),
            await one.changes.create_missing(name),
            await one.changes.delete(name),
        ):
            assert isinstance(outcome, Refusal)
            assert outcome.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert one.placed() == {}

    play(scenario())


def test_a_topic_never_grows_beyond_what_was_asked_for() -> None:
    """Another broker has added a partition, of which this one has not read yet."""

    async def scenario() -> None:
        one = await Agreeing().come()
        await one.changes.create("x", 2, {}, [])
        await one.other.topics.refresh()
        topic_id = one.topics.topics["x"].id
        await one.other.topics.put("x", made(topic_id, 1, 1, 2), "n")
        grown = await one.changes.add_partitions("x", 4, [1, 2])
        assert isinstance(grown, Refusal)
        assert grown.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert one.placed() == {"x": (1, 1, 2)}

    play(scenario())


def test_each_broker_has_a_partition_of_its_own_of_the_events() -> None:
    """Two that make theirs at once: the one is decided on top of the other."""

    async def scenario() -> None:
        one = await Agreeing().come()
        two = one.other.topics
        is_first = True

        async def quicker(operations: object) -> None:
            nonlocal is_first
            if is_first and isinstance(operations, list):
                is_first = False
                await two.put(TOPIC, made("22" * 16, 2), "n")

        one.player.session.before = quicker
        own = await one.changes.own_partition(TOPIC, TOPIC_CONFIGS)
        assert isinstance(own, Partition)
        assert not is_first
        assert own.name == f"{TOPIC}-1"
        assert one.placed() == {TOPIC: (2, 1)}
        assert await one.changes.own_partition(TOPIC, TOPIC_CONFIGS) is own
        assert one.placed() == {TOPIC: (2, 1)}

    play(scenario())


def test_the_topic_of_events_is_there_when_it_is_asked_for() -> None:
    async def scenario() -> None:
        one = await Agreeing().come()
        made = await one.changes.create_missing(TOPIC)
        assert isinstance(made, HostedTopic)
        assert made.topic.configs == TOPIC_CONFIGS
        assert one.placed() == {TOPIC: (1,)}

    play(scenario())


def test_a_partition_that_was_agreed_on_and_is_not_here_yet_is_not_made_twice() -> None:
    """As when the broker ended before it had followed."""

    async def scenario() -> None:
        one = await Agreeing().come()
        await one.other.topics.put(TOPIC, made("22" * 16, 2, 1), "n")
        own = await one.changes.own_partition(TOPIC, TOPIC_CONFIGS)
        assert isinstance(own, Partition)
        assert one.placed() == {TOPIC: (2, 1)}

    play(scenario())


def test_a_topic_that_is_too_like_it_stands_in_the_way_of_events_and_of_nothing_else() -> None:
    async def scenario() -> None:
        one = await Agreeing().come()
        await one.changes.create("__group.events", 1, {}, [])
        own = await one.changes.own_partition(TOPIC, TOPIC_CONFIGS)
        assert isinstance(own, Refusal)
        assert "too like" in own.message
        await one.follow()
        assert await one.topics.is_applied_by([1], one.topics.version)

    play(scenario())
