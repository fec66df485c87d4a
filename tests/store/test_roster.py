"""Who is up, who has which shard, and how that is decided without asking each other."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.store.founding import find_cluster, found_cluster, reserve_producer_ids
from partage.store.memory import MemoryZooKeeper, lost
from partage.store.placement import place_partitions, place_shards
from partage.store.roster import AddressTaken, IdTaken
from partage.store.tree import BrokerDoc, ClusterDoc, ForeignData, encode
from partage.store.zookeeper import Create, Delete, Operation, SessionOver

from .zoo import SHARDS, TREE, Player, play

# Placement.

BROKERS = st.lists(st.integers(0, 9), unique=True, max_size=6)
OWNERS = st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=60).map(
    lambda owners: dict(enumerate(owners))
)


@given(OWNERS, BROKERS)
def test_shards_are_placed_evenly_and_move_as_little_as_can_be(
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
def test_what_is_placed_stays(owners: dict[int, int | None], brokers: list[int]) -> None:
    placed = place_shards(owners, brokers)
    assert place_shards(dict(placed), brokers[::-1]) == placed


def test_partitions_are_placed_in_turn_beginning_with_who_holds_least() -> None:
    assert place_partitions(5, [3, 1, 2], {1: 4, 2: 1}) == (3, 2, 1, 3, 2)


# Founding.


def test_all_who_found_a_cluster_find_the_same() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = zoo.connect(), zoo.connect()
        assert await find_cluster(one, TREE) is None
        found = await found_cluster(one, TREE, "first", SHARDS)
        assert found == ClusterDoc(partage=1, cluster_id="first", shards=SHARDS)
        assert await found_cluster(two, TREE, "second", 99) == found

    play(scenario())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_founding_in_doubt(when: str, count: int) -> None:
    async def scenario() -> None:
        session = MemoryZooKeeper().connect()
        setattr(session, when, lost(count))
        found = await found_cluster(session, TREE, "mine", SHARDS)
        assert found.cluster_id == "mine"

    play(scenario())


def test_two_found_it_at_the_same_time() -> None:
    """One looks between the other's two looks; neither takes the other's cluster for a stranger."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = zoo.connect(), zoo.connect()

        async def other_is_quicker(what: Sequence[Operation] | str) -> None:
            if what == TREE.root:
                await found_cluster(two, TREE, "second", SHARDS)

        one.before = other_is_quicker
        assert (await found_cluster(one, TREE, "first", SHARDS)).cluster_id == "second"

    play(scenario())


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({"/a/cluster/topics": b""}, "something else"),
        ({TREE.root: b"hello"}, "something else than a cluster of Partage .data of the node"),
        ({TREE.cluster: b"<xml>"}, "cannot be read"),
        (
            {TREE.cluster: encode(ClusterDoc(partage=2, cluster_id="x", shards=1))},
            "format 2",
        ),
    ],
)
def test_what_is_not_a_cluster_is_refused_and_left_alone(
    nodes: dict[str, bytes], words: str
) -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        session = zoo.connect()
        made = {"/a": b"", "/a/cluster": b"", **nodes}
        await session.transact([Create(path, data) for path, data in made.items()])
        before = dict(zoo.nodes)
        with pytest.raises(ForeignData, match=words):
            await found_cluster(session, TREE, "mine", SHARDS)
        assert zoo.nodes == before

    play(scenario())


def test_producer_ids_are_handed_out_once() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await Player(zoo, 1).come(), await Player(zoo, 2).come()
        first = await reserve_producer_ids(one.session, TREE, 10)
        one.session.after = lost()
        second = await reserve_producer_ids(one.session, TREE, 10)
        third = await reserve_producer_ids(two.session, TREE, 10)
        assert first == 0
        assert second >= 10
        assert third >= second + 10

    play(scenario())


# Being up.


def test_an_id_is_for_one_broker() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        await Player(zoo, 1).come()
        with pytest.raises(IdTaken, match="a broker with id 1 is up at h:1"):
            await Player(zoo, 1, "another directory").come()

    play(scenario())


def test_an_address_is_for_one_broker() -> None:
    """Of two that are up already, because they came at the same time, one gives way."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = Player(zoo, 1), await Player(zoo, 2).come()
        here = BrokerDoc(host="H", port=2, incarnation="i", directory="d")
        one.roster.expect_own_address(here)  # before it has looked
        await one.look()
        with pytest.raises(AddressTaken, match="broker 2 is up at H:2"):
            one.roster.expect_own_address(here)
        await one.come()
        with pytest.raises(AddressTaken):  # what an earlier run has left gives no right to it
            one.roster.expect_own_address(here)
        await one.roster.leave()
        await one.roster.register(here)
        await one.look()
        await two.look()
        one.roster.expect_own_address(here)
        with pytest.raises(AddressTaken, match="broker 1 is up at h:2"):
            two.roster.expect_own_address(two.roster.brokers[2])

    play(scenario())


def test_what_replaced_an_earlier_registration_and_comes_late_takes_nobody_down() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        await Player(zoo, 1).come()
        again, other = Player(zoo, 1), await Player(zoo, 2).come()
        before, sent = again.session.before, list[list[Operation]]()

        async def seen(what: Sequence[Operation] | str) -> None:
            if not isinstance(what, str) and any(isinstance(each, Delete) for each in what):
                sent.append(list(what))

        again.session.before = seen
        await again.come()
        again.session.before = before
        (late,) = sent
        await again.session.transact(late)
        await other.look()
        assert other.roster.brokers[1].incarnation == again.incarnation

    play(scenario())


def test_who_was_killed_and_comes_again_takes_its_place_at_once() -> None:
    """The data directory is locked: whoever was registered from it is gone."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        killed, other = await Player(zoo, 1).come(), await Player(zoo, 2).come()
        log = await killed.take()
        again = await Player(zoo, 1).come()
        assert again.roster.owner(0) is None, "it was another incarnation's"
        await again.take()
        assert (await killed.store(log)) == []
        await other.look()
        assert other.roster.owner(0) == 1

    play(scenario())


@pytest.mark.parametrize("when", ["before", "after"])
def test_registering_in_doubt(when: str) -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        player = Player(zoo, 1)
        await found_cluster(zoo.connect(), TREE, "mine", SHARDS)
        setattr(player.session, when, lost())
        await player.come()
        assert zoo.nodes[TREE.broker(1)].session == player.session.session_id

    play(scenario())


def test_a_watch_tells_of_who_comes_and_goes() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await Player(zoo, 1).come()
        heard: list[str] = []
        await one.roster.refresh(lambda: heard.append("brokers"))
        two = await Player(zoo, 2).come()
        assert heard == ["brokers"]
        await one.roster.refresh(lambda: heard.append("gone"))
        zoo.expire(two.session)
        assert heard == ["brokers", "gone"]
        await one.look()
        assert list(one.roster.brokers) == [1]

    play(scenario())


# Shards.


async def settle(players: list[Player]) -> None:
    """Everybody looks, and does what it has to, until nobody has anything to do."""
    for _ in range(10):
        is_settled = True
        for player in players:
            await player.look()
            take, give = player.roster.wanted()
            is_settled &= not take and not give
            await player.roster.give(give)
            await player.roster.take(take)
        if is_settled:
            return
    raise AssertionError("they never settle")


def owners(player: Player) -> list[int | None]:
    return [player.roster.owner(shard) for shard in range(SHARDS)]


def test_shards_go_to_who_is_up_and_are_shared_with_who_comes() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await Player(zoo, 1).come()
        await settle([one])
        assert owners(one) == [1, 1, 1, 1]
        two = await Player(zoo, 2).come()
        await settle([one, two])
        assert sorted(map(str, owners(one))) == ["1", "1", "2", "2"]
        zoo.expire(one.session)
        await settle([two])
        assert owners(two) == [2, 2, 2, 2]

    play(scenario())


def test_the_epoch_rises_with_every_owner() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await Player(zoo, 1).come(), await Player(zoo, 2).come()
        epochs = [(await player.take()).epoch for player in (one, two, one, one, two)]
        assert epochs == [1, 2, 3, 4, 5]

    play(scenario())


def test_of_two_that_take_a_shard_one_has_it() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await Player(zoo, 1).come(), await Player(zoo, 2).come()
        await one.look()
        await two.look()
        assert [t.shard for t in await one.roster.take([0, 1])] == [0, 1]
        assert [t.shard for t in await two.roster.take([1, 2])] == [2]

    play(scenario())


@pytest.mark.parametrize("count", range(4 + SHARDS))
def test_nobody_takes_a_shard_from_who_came_while_it_was_reading(count: int) -> None:
    """An owner that is not among the brokers is gone only if these were read after it was owner."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two, three = await Player(zoo, 1).come(), Player(zoo, 2), await Player(zoo, 3).come()
        await three.take(3)
        left = count

        async def somebody_comes(what: Sequence[Operation] | str) -> None:
            nonlocal left
            left -= 1
            if left < 0 and not two.roster.brokers:
                await two.come()
                assert [t.shard for t in await two.roster.take([0])] == [0]

        nobody, one.session.after = one.session.after, somebody_comes
        await one.look()
        one.session.after = nobody
        assert two.roster.shards[0].broker == 2, "it came"
        take, _ = one.roster.wanted()
        assert 0 not in [t.shard for t in await one.roster.take(take)]

    play(scenario())


def test_a_look_that_began_earlier_and_ends_later_changes_nothing() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await Player(zoo, 1).come(), Player(zoo, 2)

        async def look_again(what: Sequence[Operation] | str) -> None:
            one.session.after = nobody
            await two.come()
            await one.roster.look()

        nobody, one.session.after = one.session.after, look_again
        await one.roster.look()
        assert sorted(one.roster.brokers) == [1, 2]

    play(scenario())


@pytest.mark.parametrize("when", ["before", "after"])
def test_taking_in_doubt(when: str) -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await Player(zoo, 1).come(), await Player(zoo, 2).come()
        await two.take(1)
        setattr(one.session, when, lost(2))
        taken = await one.roster.take([0, 1, 2])
        assert {t.shard: t.epoch for t in taken} == {0: 1, 2: 1}
        assert [zoo.nodes[TREE.shard(t.shard)].version for t in taken] == [t.version for t in taken]

    play(scenario())


def test_what_is_read_before_the_answer_comes_is_not_counted_twice() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await Player(zoo, 1).come()

        async def read_first(what: Sequence[Operation] | str) -> None:
            if not isinstance(what, str):
                await one.look()

        one.session.after = read_first
        (tenure,) = await one.roster.take([0])
        assert tenure.version == zoo.nodes[TREE.shard(0)].version
        assert one.roster.owned() == [0]
        (again,) = await one.roster.take([0])
        assert (again.version, again.epoch) == (tenure.version + 1, tenure.epoch + 1)

    play(scenario())


def test_who_reads_slowly_does_not_bring_back_an_owner_of_before() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await Player(zoo, 1).come()
        (tenure,) = await one.roster.take([0])

        async def take_first(what: Sequence[Operation] | str) -> None:
            if what == TREE.shard(0):
                one.session.after = nobody
                await one.roster.take([0])

        nobody, one.session.after = one.session.after, take_first
        await one.look()
        assert one.roster.shards[0].epoch == tenure.epoch + 1
        (third,) = await one.roster.take([0])
        assert third.epoch == tenure.epoch + 2

    play(scenario())


@pytest.mark.parametrize("name", ["backup", "-1", "1.5", "\N{SUPERSCRIPT TWO}"])
def test_a_registration_of_something_else_is_told_with_its_place(name: str) -> None:
    async def scenario() -> None:
        one = await Player(MemoryZooKeeper(), 1).come()
        await one.session.transact([Create(f"{TREE.brokers}/{name}")])
        with pytest.raises(ForeignData, match=f"/a/cluster/brokers/{name} in ZooKeeper is nothing"):
            await one.look()

    play(scenario())


def test_a_session_that_is_over_stays_over() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await Player(zoo, 1).come()
        zoo.expire(one.session)
        for _ in range(2):
            with pytest.raises(SessionOver):
                await one.look()

    play(scenario())
