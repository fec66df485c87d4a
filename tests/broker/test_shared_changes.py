"""Changes of topics that clients ask a broker of a cluster for."""

from __future__ import annotations

import pytest

from partage.broker.cluster.shared_changes import SharedChanges
from partage.log.outcomes import Refusal
from partage.model.errors import ErrorCode
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
