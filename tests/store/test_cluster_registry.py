"""Registration of brokers, and ownership of shards."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.store.bootstrap import find_cluster, find_or_create_cluster, reserve_producer_ids
from partage.store.cluster_registry import AddressInUseError, BrokerIdInUseError
from partage.store.memory import MemoryZooKeeper, lose_transactions
from partage.store.placement import place_partitions, place_shards
from partage.store.zk_schema import BrokerDoc, ClusterDoc, ForeignDataError, encode
from partage.store.zookeeper import (
    Create,
    Delete,
    Operation,
    RefusalReason,
    RefusedError,
    SessionEndedError,
)

from .zk_fixture import PATHS, SHARDS, BrokerStores, run

EXISTS = RefusalReason.EXISTS

# Placement.

BROKERS = st.lists(st.integers(0, 9), unique=True, max_size=6)
OWNERS = st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=60).map(
    lambda owners: dict(enumerate(owners))
)


@given(OWNERS, BROKERS)
def test_shards_placed_evenly_with_few_moves(
    owners: dict[int, int | None], brokers: list[int]
) -> None:
    placed = place_shards(owners, brokers)
    if not brokers:
        assert placed == {}
        return
    assert placed.keys() == owners.keys()
    counts = [list(placed.values()).count(broker) for broker in brokers]
    assert max(counts) - min(counts) <= 1
    held = [sum(owner == broker for owner in owners.values()) for broker in brokers]
    least, more = divmod(len(owners), len(brokers))
    room = sorted((min(h, least + 1) - min(h, least) for h in held), reverse=True)
    kept_at_best = sum(min(h, least) for h in held) + sum(room[:more])
    assert sum(placed[shard] == owner for shard, owner in owners.items()) == kept_at_best


@given(OWNERS, BROKERS)
def test_balanced_placement_is_stable(owners: dict[int, int | None], brokers: list[int]) -> None:
    placed = place_shards(owners, brokers)
    assert place_shards(dict(placed), brokers[::-1]) == placed


def test_partitions_placed_in_turn_from_least_loaded() -> None:
    assert place_partitions(5, [3, 1, 2], {1: 4, 2: 1}) == (3, 2, 1, 3, 2)


# Creation of the cluster.


def test_concurrent_creation_gives_one_cluster() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = zoo.connect(), zoo.connect()
        assert await find_cluster(one, PATHS) is None
        found = await find_or_create_cluster(one, PATHS, "first", SHARDS, 2)
        assert found == ClusterDoc(
            partage=1, cluster_id="first", shards=SHARDS, transaction_shards=2
        )
        assert await find_or_create_cluster(two, PATHS, "second", 99) == found

    run(scenario())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_cluster_creation_in_doubt(when: str, count: int) -> None:
    async def scenario() -> None:
        session = MemoryZooKeeper().connect()
        setattr(session, when, lose_transactions(count))
        found = await find_or_create_cluster(session, PATHS, "mine", SHARDS)
        assert found.cluster_id == "mine"

    run(scenario())


def test_creation_between_two_reads_is_accepted() -> None:
    """One broker creates the cluster between two reads of the other, which must accept it."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = zoo.connect(), zoo.connect()

        async def other_is_quicker(what: Sequence[Operation] | str) -> None:
            if what == PATHS.root:
                await find_or_create_cluster(two, PATHS, "second", SHARDS)

        one.before = other_is_quicker
        assert (await find_or_create_cluster(one, PATHS, "first", SHARDS)).cluster_id == "second"

    run(scenario())


#: The creations of /a, of the root of the cluster, and of the cluster.
CREATIONS = range(3)


@pytest.mark.parametrize("nth", CREATIONS)
def test_other_broker_is_quicker_with_any_transaction(nth: int) -> None:
    """Brokers that start at the same time create the same parents."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = zoo.connect(), zoo.connect()
        left = nth

        async def other_is_quicker(what: Sequence[Operation] | str) -> None:
            nonlocal left
            if isinstance(what, str):
                return
            if left == 0:
                await two.transact(what)
            left -= 1

        one.before = other_is_quicker
        found = await find_or_create_cluster(one, PATHS, "mine", SHARDS)
        assert left < 0
        assert found == await find_or_create_cluster(two, PATHS, "other", SHARDS)
        assert found.cluster_id == "mine"

    run(scenario())


@pytest.mark.parametrize("reason", [each for each in RefusalReason if each is not EXISTS], ids=str)
@pytest.mark.parametrize("nth", CREATIONS)
def test_refused_creation_raises(nth: int, reason: RefusalReason) -> None:
    """For example ZooKeeper gives this user no permission to create nodes."""

    async def scenario() -> None:
        session = MemoryZooKeeper().connect()
        left = nth

        async def refuse(what: Sequence[Operation] | str) -> None:
            nonlocal left
            if isinstance(what, str):
                return
            left -= 1
            if left < 0:
                raise RefusedError(0, reason)

        session.before = refuse
        with pytest.raises(RefusedError, match=reason.value):
            await find_or_create_cluster(session, PATHS, "mine", SHARDS)
        assert left == -1, "it must not be repeated"

    run(scenario())


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({"/a/cluster/topics": b""}, "holds other data"),
        ({PATHS.root: b"hello"}, "other data than a Partage cluster .data in the node"),
        ({PATHS.cluster: b"<xml>"}, "cannot be decoded"),
        (
            {
                PATHS.cluster: encode(
                    ClusterDoc(partage=2, cluster_id="x", shards=1, transaction_shards=1)
                )
            },
            "format 2",
        ),
    ],
)
def test_foreign_path_is_rejected_unchanged(nodes: dict[str, bytes], words: str) -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        session = zoo.connect()
        made = {"/a": b"", "/a/cluster": b"", **nodes}
        await session.transact([Create(path, data) for path, data in made.items()])
        before = dict(zoo.nodes)
        with pytest.raises(ForeignDataError, match=words):
            await find_or_create_cluster(session, PATHS, "mine", SHARDS)
        assert zoo.nodes == before

    run(scenario())


def test_producer_ids_reserved_once() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        first = await reserve_producer_ids(one.session, PATHS, 10)
        one.session.after = lose_transactions()
        second = await reserve_producer_ids(one.session, PATHS, 10)
        third = await reserve_producer_ids(two.session, PATHS, 10)
        assert first == 0
        assert second >= 10
        assert third >= second + 10

    run(scenario())


# Registration.


def test_broker_id_in_use_is_rejected() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        await BrokerStores(zoo, 1).register()
        with pytest.raises(BrokerIdInUseError, match="broker id 1 is in use by the broker at h:1"):
            await BrokerStores(zoo, 1, "another directory").register()

    run(scenario())


def test_address_in_use_is_rejected() -> None:
    """Of two brokers that registered at the same time, the one with the higher id fails."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = BrokerStores(zoo, 1), await BrokerStores(zoo, 2).register()
        here = BrokerDoc(host="H", port=2, incarnation="i", directory="d")
        one.roster.check_address_unused(here)  # before its first refresh
        await one.refresh()
        with pytest.raises(AddressInUseError, match="address H:2 is in use by broker 2"):
            one.roster.check_address_unused(here)
        await one.register()
        # a node left by an earlier run gives no right to the address
        with pytest.raises(AddressInUseError):
            one.roster.check_address_unused(here)
        await one.roster.unregister()
        await one.roster.register(here)
        await one.refresh()
        await two.refresh()
        one.roster.check_address_unused(here)
        with pytest.raises(AddressInUseError, match="address h:2 is in use by broker 1"):
            two.roster.check_address_unused(two.roster.brokers[2])

    run(scenario())


def test_late_replacement_keeps_current_registration() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        await BrokerStores(zoo, 1).register()
        again, other = BrokerStores(zoo, 1), await BrokerStores(zoo, 2).register()
        before, sent = again.session.before, list[list[Operation]]()

        async def seen(what: Sequence[Operation] | str) -> None:
            if not isinstance(what, str) and any(isinstance(each, Delete) for each in what):
                sent.append(list(what))

        again.session.before = seen
        await again.register()
        again.session.before = before
        (late,) = sent
        await again.session.transact(late)
        await other.refresh()
        assert other.roster.brokers[1].incarnation == again.incarnation

    run(scenario())


def test_restarted_broker_replaces_its_registration() -> None:
    """The data directory is locked, so an earlier process with this directory has ended."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        killed, other = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        log = await killed.acquire()
        again = await BrokerStores(zoo, 1).register()
        assert again.roster.owner(0) is None, "it was another incarnation's"
        await again.acquire()
        assert (await killed.store(log)) == []
        await other.refresh()
        assert other.roster.owner(0) == 1

    run(scenario())


@pytest.mark.parametrize("when", ["before", "after"])
def test_registration_in_doubt(when: str) -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        player = BrokerStores(zoo, 1)
        await find_or_create_cluster(zoo.connect(), PATHS, "mine", SHARDS)
        setattr(player.session, when, lose_transactions())
        await player.register()
        assert zoo.nodes[PATHS.broker(1)].session == player.session.session_id

    run(scenario())


def test_watch_reports_registrations() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await BrokerStores(zoo, 1).register()
        heard: list[str] = []
        await one.roster.refresh(lambda: heard.append("brokers"))
        two = await BrokerStores(zoo, 2).register()
        assert heard == ["brokers"]
        await one.roster.refresh(lambda: heard.append("gone"))
        zoo.expire(two.session)
        assert heard == ["brokers", "gone"]
        await one.refresh()
        assert list(one.roster.brokers) == [1]

    run(scenario())


# Shards.


async def settle(players: list[BrokerStores]) -> None:
    """Refresh all brokers, and let them take and release shards until none has changes."""
    for _ in range(10):
        is_settled = True
        for player in players:
            await player.refresh()
            take, give = player.roster.plan_changes()
            is_settled &= not take and not give
            await player.roster.release(give)
            await player.roster.acquire(take)
        if is_settled:
            return
    raise AssertionError("they never settle")


def owners(player: BrokerStores) -> list[int | None]:
    return [player.roster.owner(shard) for shard in range(SHARDS)]


def test_shards_rebalanced_to_new_broker() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await BrokerStores(zoo, 1).register()
        await settle([one])
        assert owners(one) == [1, 1, 1, 1]
        two = await BrokerStores(zoo, 2).register()
        await settle([one, two])
        assert sorted(map(str, owners(one))) == ["1", "1", "2", "2"]
        zoo.expire(one.session)
        await settle([two])
        assert owners(two) == [2, 2, 2, 2]

    run(scenario())


def test_epoch_rises_with_every_owner() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        epochs = [(await player.acquire()).epoch for player in (one, two, one, one, two)]
        assert epochs == [1, 2, 3, 4, 5]

    run(scenario())


def test_concurrent_acquire_has_one_winner() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        await one.refresh()
        await two.refresh()
        assert [t.shard for t in await one.roster.acquire([0, 1])] == [0, 1]
        assert [t.shard for t in await two.roster.acquire([1, 2])] == [2]

    run(scenario())


@pytest.mark.parametrize("count", range(4 + SHARDS))
def test_shard_of_broker_registered_during_refresh_is_kept(count: int) -> None:
    """An owner that is not registered has ended only if the brokers were read after the owners."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two, three = (
            await BrokerStores(zoo, 1).register(),
            BrokerStores(zoo, 2),
            await BrokerStores(zoo, 3).register(),
        )
        await three.acquire(3)
        left = count

        async def register_two(what: Sequence[Operation] | str) -> None:
            nonlocal left
            left -= 1
            if left < 0 and not two.roster.brokers:
                await two.register()
                assert [t.shard for t in await two.roster.acquire([0])] == [0]

        nobody, one.session.after = one.session.after, register_two
        await one.refresh()
        one.session.after = nobody
        assert two.roster.shards[0].broker == 2, "it came"
        take, _ = one.roster.plan_changes()
        assert 0 not in [t.shard for t in await one.roster.acquire(take)]

    run(scenario())


def test_outdated_concurrent_refresh_is_ignored() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), BrokerStores(zoo, 2)

        async def look_again(what: Sequence[Operation] | str) -> None:
            one.session.after = nobody
            await two.register()
            await one.roster.refresh_brokers()

        nobody, one.session.after = one.session.after, look_again
        await one.roster.refresh_brokers()
        assert sorted(one.roster.brokers) == [1, 2]

    run(scenario())


@pytest.mark.parametrize("when", ["before", "after"])
def test_acquire_in_doubt(when: str) -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        await two.acquire(1)
        setattr(one.session, when, lose_transactions(2))
        taken = await one.roster.acquire([0, 1, 2])
        assert {t.shard: t.epoch for t in taken} == {0: 1, 2: 1}
        assert [zoo.nodes[PATHS.shard(t.shard)].version for t in taken] == [
            t.version for t in taken
        ]

    run(scenario())


def test_change_read_before_its_reply_counted_once() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await BrokerStores(zoo, 1).register()

        async def read_first(what: Sequence[Operation] | str) -> None:
            if not isinstance(what, str):
                await one.refresh()

        one.session.after = read_first
        (tenure,) = await one.roster.acquire([0])
        assert tenure.version == zoo.nodes[PATHS.shard(0)].version
        assert one.roster.owned() == [0]
        (again,) = await one.roster.acquire([0])
        assert (again.version, again.epoch) == (tenure.version + 1, tenure.epoch + 1)

    run(scenario())


def test_slow_refresh_does_not_restore_old_owner() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await BrokerStores(zoo, 1).register()
        (tenure,) = await one.roster.acquire([0])

        async def take_first(what: Sequence[Operation] | str) -> None:
            if what == PATHS.shard(0):
                one.session.after = nobody
                await one.roster.acquire([0])

        nobody, one.session.after = one.session.after, take_first
        await one.refresh()
        assert one.roster.shards[0].epoch == tenure.epoch + 1
        (third,) = await one.roster.acquire([0])
        assert third.epoch == tenure.epoch + 2

    run(scenario())


@pytest.mark.parametrize("name", ["backup", "-1", "1.5", "\N{SUPERSCRIPT TWO}"])
def test_foreign_registration_error_names_path(name: str) -> None:
    async def scenario() -> None:
        one = await BrokerStores(MemoryZooKeeper(), 1).register()
        await one.session.transact([Create(f"{PATHS.brokers}/{name}")])
        with pytest.raises(
            ForeignDataError, match=f"/a/cluster/brokers/{name} in ZooKeeper was not written"
        ):
            await one.refresh()

    run(scenario())


def test_ended_session_rejects_requests() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await BrokerStores(zoo, 1).register()
        zoo.expire(one.session)
        for _ in range(2):
            with pytest.raises(SessionEndedError):
                await one.refresh()

    run(scenario())
