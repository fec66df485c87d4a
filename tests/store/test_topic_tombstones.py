"""The name of a deleted topic is reserved while groups may hold offsets for it."""

from __future__ import annotations

import pytest

from partage.store.memory import MemoryZooKeeper, lose_transactions
from partage.store.topic_tombstones import TopicNameReservedError
from partage.store.zk_schema import AppliedDoc

from .zk_fixture import PATHS, SHARDS, BrokerStores, made, run


class BrokerPair:
    """Two brokers; the first owns all shards, and topic t was created and deleted."""

    async def come(self) -> BrokerPair:
        self.zoo = MemoryZooKeeper()
        self.one = await BrokerStores(self.zoo, 1).register()
        await self.one.roster.acquire(range(SHARDS))
        self.two = await BrokerStores(self.zoo, 2).register()
        await self.one.topics.put("t", made("aa", 1), "n1")
        await self.one.topics.delete("t", "n2")
        return self

    async def tell(self, player: BrokerStores, *shards: int, forgot: int | None = None) -> None:
        """Publish that the broker has applied the deletion, for these of its shards."""
        await player.topics.refresh()
        await player.refresh()
        epochs = {shard: player.roster.shards[shard].epoch for shard in shards}
        version = player.topics.version
        said = AppliedDoc(
            value=version, forgot=version if forgot is None else forgot, shards=epochs
        )
        assert await player.topics.publish_applied(said)

    async def is_forgotten(self) -> bool:
        """Return whether the name is free, for all brokers."""
        left = await self.two.topics.release_names()
        assert (
            left == await self.one.topics.reserved_names() == await self.two.topics.reserved_names()
        )
        if left:
            with pytest.raises(TopicNameReservedError):
                await self.two.topics.put("t", made("bb", 2), "n3")
        return not left


def test_name_free_when_all_brokers_and_shards_applied() -> None:
    async def scenario() -> None:
        pair = await BrokerPair().come()
        assert not await pair.is_forgotten()
        await pair.tell(pair.one, *range(SHARDS))
        # broker two might accept commits for the topic in a shard that it gets
        assert not await pair.is_forgotten()
        await pair.tell(pair.two)
        assert await pair.is_forgotten()
        assert await pair.two.topics.put("t", made("bb", 2), "n3")
        assert pair.two.topics.topics["t"].id == "bb"

    run(scenario())


def test_other_names_are_not_reserved() -> None:
    async def scenario() -> None:
        pair = await BrokerPair().come()
        assert await pair.two.topics.put("u", made("bb", 2), "n3")
        assert await pair.two.topics.put("u", made("bb", 2, 1), "n4")

    run(scenario())


def test_name_reserved_until_every_shard_applied() -> None:
    async def scenario() -> None:
        pair = await BrokerPair().come()
        await pair.tell(pair.two)
        await pair.tell(pair.one, *range(SHARDS - 1))
        assert not await pair.is_forgotten()
        await pair.tell(pair.one, *range(SHARDS), forgot=pair.one.topics.version - 1)
        assert not await pair.is_forgotten()
        await pair.tell(pair.one, *range(SHARDS))
        assert await pair.is_forgotten()

    run(scenario())


def test_new_owner_must_publish_again() -> None:
    """A publication for an earlier epoch is not valid in the current one: the owner in between had
    not applied the deletion, and may have accepted commits.
    """

    async def scenario() -> None:
        pair = await BrokerPair().come()
        await pair.tell(pair.one, *range(SHARDS))
        await pair.two.refresh()
        await pair.two.roster.acquire([0])
        await pair.tell(pair.two)
        assert not await pair.is_forgotten()
        await pair.tell(pair.two, 0)
        assert await pair.is_forgotten()

    run(scenario())


def test_name_reserved_until_dead_brokers_shard_taken() -> None:
    async def scenario() -> None:
        pair = await BrokerPair().come()
        await pair.tell(pair.two)
        pair.zoo.expire(pair.one.session)
        left = await pair.two.topics.release_names()
        assert left == {"t"}
        await pair.two.refresh()
        await pair.two.roster.acquire(range(SHARDS))
        await pair.tell(pair.two, *range(SHARDS))
        assert await pair.two.topics.release_names() == set()
        assert await pair.two.session.children(PATHS.tombstones) == ["aa.1"]

    run(scenario())


def test_released_shard_that_applied_is_not_awaited() -> None:
    async def scenario() -> None:
        pair = await BrokerPair().come()
        await pair.tell(pair.one, *range(SHARDS))
        await pair.one.roster.release([0])
        await pair.tell(pair.two)
        assert await pair.is_forgotten()

    run(scenario())


def test_deletion_during_creation_is_detected() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        await two.topics.refresh()
        is_first = True

        async def overtaken(what: object) -> None:
            nonlocal is_first
            if what == PATHS.tombstones and is_first:
                is_first = False
                await one.topics.put("t", made("aa", 1), "n1")
                await one.topics.delete("t", "n2")

        two.session.after = overtaken
        with pytest.raises(TopicNameReservedError):
            await two.topics.put("t", made("bb", 2), "n3")

    run(scenario())


def test_concurrent_release_of_name() -> None:
    async def scenario() -> None:
        pair = await BrokerPair().come()
        await pair.tell(pair.one, *range(SHARDS))
        await pair.tell(pair.two)

        async def overtaken(what: object) -> None:
            if not isinstance(what, str):
                assert await pair.one.topics.release_names() == set()

        pair.two.session.before = overtaken
        assert await pair.two.topics.release_names() == set()

    run(scenario())


@pytest.mark.parametrize("when", ["before", "after"])
def test_release_in_doubt_is_retried(when: str) -> None:
    async def scenario() -> None:
        pair = await BrokerPair().come()
        await pair.tell(pair.one, *range(SHARDS))
        await pair.tell(pair.two)
        losing = lose_transactions()

        async def lose(what: object) -> None:
            if not isinstance(what, str):
                await losing([])

        setattr(pair.two.session, when, lose)
        assert await pair.two.topics.release_names() == {"t"}
        assert await pair.two.topics.release_names() == set()

    run(scenario())
