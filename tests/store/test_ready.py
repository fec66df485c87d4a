"""A broker gets shards after it has applied all topic changes, and not before."""

from __future__ import annotations

import msgspec
import pytest

from partage.store.memory import MemoryZooKeeper, lose_transactions
from partage.store.zk_schema import BrokerDoc, decode
from partage.store.zookeeper import Delete

from .zk_fixture import PATHS, SHARDS, BrokerStores, nothing, run


class JoiningBroker(BrokerStores):
    """A broker that marks itself ready explicitly."""

    @property
    def me(self) -> BrokerDoc:
        return BrokerDoc(
            host="h",
            port=1,
            incarnation=self.incarnation,
            directory=self.directory,
            is_ready=False,
        )

    def found(self, zoo: MemoryZooKeeper) -> BrokerDoc:
        path = PATHS.broker(self.broker_id)
        return decode(path, zoo.nodes[path].data, BrokerDoc)


async def decide(*players: BrokerStores) -> None:
    """Let all brokers take and release shards, several times."""
    for _ in range(4):
        for player in players:
            await player.refresh()
            take, give = player.roster.plan_changes()
            await player.roster.release(give)
            await player.roster.acquire(take)


def owners(player: BrokerStores) -> list[int | None]:
    return [player.roster.owner(shard) for shard in range(SHARDS)]


def test_shards_keep_owner_while_new_broker_not_ready() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        await decide(one, two)
        three = JoiningBroker(zoo, 3)
        await three.roster.register(three.me)
        await decide(one, two, three)
        assert sorted(map(str, owners(one))) == ["1", "1", "2", "2"]
        await three.roster.mark_ready()
        await decide(one, two, three)
        assert sorted(map(str, owners(one))) in (["1", "1", "2", "3"], ["1", "2", "2", "3"])
        await two.roster.unregister()
        await decide(one, three)
        assert sorted(map(str, owners(one))) == ["1", "1", "3", "3"]

    run(scenario())


def test_owner_keeps_shards_until_ready_again() -> None:
    """Its registration was removed, for example by an administrator, and created again."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), JoiningBroker(zoo, 2)
        await two.roster.register(two.me)
        await two.roster.mark_ready()
        await decide(one, two)
        before = owners(one)
        await one.session.transact([Delete(PATHS.broker(2))])
        await two.roster.register(two.me)
        await decide(one, two)
        assert owners(one) == before
        await two.roster.mark_ready()
        await decide(one, two)
        assert owners(one) == before

    run(scenario())


def test_watch_reports_readiness() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), JoiningBroker(zoo, 2)
        await two.roster.register(two.me)
        heard: list[int] = []
        await one.roster.refresh(lambda: heard.append(1))
        await two.roster.mark_ready()
        assert heard
        await two.roster.mark_ready()
        heard.clear()
        await one.roster.refresh(lambda: heard.append(1))
        assert one.roster.brokers[2].is_ready
        await two.roster.mark_ready()  # it is ready already
        assert not heard

    run(scenario())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("count", [1, 2])
def test_mark_ready_in_doubt(when: str, count: int) -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        await BrokerStores(zoo, 1).register()
        two = JoiningBroker(zoo, 2)
        await two.roster.register(two.me)
        setattr(two.session, when, lose_transactions(count))
        await two.roster.mark_ready()
        assert two.found(zoo) == msgspec.structs.replace(two.me, is_ready=True)

    run(scenario())


def test_repeated_registration_keeps_readiness() -> None:
    """For example after an attempt whose result was in doubt."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        await BrokerStores(zoo, 1).register()
        two = JoiningBroker(zoo, 2)
        await two.roster.register(two.me)
        await two.roster.mark_ready()
        await two.roster.register(two.me)
        assert two.found(zoo).is_ready

    run(scenario())


def test_unregistered_broker_cannot_mark_ready() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        await BrokerStores(zoo, 1).register()
        two = JoiningBroker(zoo, 2)
        await two.roster.register(two.me)
        again = JoiningBroker(zoo, 2)
        await again.roster.register(again.me)
        await two.roster.mark_ready()
        assert not again.found(zoo).is_ready
        await again.roster.unregister()
        await again.roster.mark_ready()
        assert PATHS.broker(2) not in zoo.nodes
        await again.roster.refresh(nothing)

    run(scenario())
