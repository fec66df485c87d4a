"""A broker's place in its cluster, on a ZooKeeper in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from broker.test_following import Follower
from partage.broker.clock import Clock
from partage.broker.cluster import cluster, shared_changes
from partage.broker.cluster.address import StateAddress
from partage.broker.cluster.cluster import Cluster
from partage.broker.cluster.kazoo_session import KazooSession
from partage.broker.cluster.leasing import boot_ms
from partage.broker.cluster.seen import Seen
from partage.broker.cluster.shared_changes import SharedChanges
from partage.broker.coordinator import Coordinator
from partage.broker.node import Node
from partage.broker.shard_host import ShardHost
from partage.coordinator.records import OffsetCommitted
from partage.log.outcomes import Refusal
from partage.model.errors import ErrorCode
from partage.model.settings import BrokerSettings, GroupSettings
from partage.store.memory import Fault, lost
from partage.store.shard_log import shard_of
from partage.store.tree import AppliedDoc, ClusterDoc, TopicsDoc, encode
from partage.store.zookeeper import InDoubt, Operation, Refused, SetData, Why
from store.zoo import SHARDS, TREE, Player, committed, made, play

WITHIN_S = 60
NOW_MS = 1_700_000_000_000
NODE = Node(node_id=1, host="h", port=1, cluster_id="the cluster", rack=None)
FOUND = ClusterDoc(partage=1, cluster_id="the cluster", shards=SHARDS)


class Wall:
    """The clock of this machine, beginning some time after that of ZooKeeper's."""

    def __init__(self, patch: pytest.MonkeyPatch, ahead_ms: int = 0) -> None:
        self.now_ms = NOW_MS + ahead_ms
        patch.setattr(cluster, "time", self)

    def time_ns(self) -> int:
        return self.now_ms * 1_000_000


async def until(what: Callable[[], object]) -> None:
    while not what():  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)


class Place(Follower):
    """Broker 1, whole but for its sockets; ``fatal`` is what ended it."""

    def __init__(self, timeout_ms: int = 6_000) -> None:
        self.timeout_ms = timeout_ms
        self.before: Fault | None = None  # of the session, from its beginning
        self.patch = pytest.MonkeyPatch()

    async def come(self) -> Place:
        await super().come()
        self.zoo.now_ms = NOW_MS
        await self.player.roster.leave()
        self.connect()
        loop = asyncio.get_running_loop()
        self.fatal: asyncio.Future[BaseException] = loop.create_future()
        address = StateAddress(servers="memory", path=TREE.root)
        self.cluster = Cluster(
            address, BrokerSettings(node_id=1), self.session, FOUND, "d", self.fatal.set_result
        )
        self.hosts = [
            ShardHost(f"shard {n}", store, GroupSettings(), Clock(), lambda notice: None)
            for n, store in enumerate(self.cluster.stores)
        ]
        self.coordinator = Coordinator(self.hosts)
        await self.cluster.enter(NODE, self.hosted, self.coordinator)
        return self

    async def owns(self, group_id: str = "g") -> ShardHost:
        """The host of a group's shard, once it is loaded."""
        host = self.coordinator.host_of(group_id)
        await until(lambda: host.shard is not None)
        return host

    async def turns(self) -> None:
        """Long enough for everything that waits for nobody."""
        for _ in range(200):
            await asyncio.sleep(0)

    def connect(self) -> object:
        session: Any = self.zoo.connect(self.timeout_ms)
        session.begun_ms = boot_ms()

        async def end() -> None:
            self.zoo.expire(session)

        session.end = end
        session.before = self.before or session.before
        self.session = session
        return session

    async def leave(self) -> None:
        self.patch.undo()
        await self.cluster.leave()
        for host in self.hosts:
            host.close()


def with_place(scenario: Callable[[Place], Awaitable[None]], timeout_ms: int = 6_000) -> None:
    async def played() -> None:
        place = await Place(timeout_ms).come()
        try:
            await asyncio.wait_for(scenario(place), WITHIN_S)
        finally:
            await place.leave()

    play(played())


def test_a_broker_that_has_come_just_now_is_seen_by_who_asks_for_it() -> None:
    """Though the watch has not told of it yet."""

    async def scenario(place: Place) -> None:
        seen = Seen(place.cluster)
        assert await seen.are_up([1])
        assert not await seen.are_up([1, 2])
        place.zoo._child_watches.clear()
        await Player(place.zoo, 2).come()
        assert not seen.is_up(2)
        assert await seen.are_up([1, 2])
        assert [node.node_id for node in seen.brokers()] == [1, 2]

    with_place(scenario)


def test_a_topic_is_deleted_when_no_crash_can_bring_back_what_groups_committed() -> None:
    async def scenario(place: Place) -> None:
        changes = SharedChanges(place.cluster, place.hosted)
        await changes.create("t", 1, {}, [])
        host = await place.owns()
        commit = OffsetCommitted(group_id="g", topic="t", partition=0, offset=5, commit_ms=0)
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
        applied = place.zoo.nodes[TREE.applied_by(1)].version
        is_free.set()
        assert not isinstance(await deleting, Refusal)
        assert place.zoo.nodes[TREE.applied_by(1)].version == applied + 1
        assert len(await place.player.session.children(TREE.log(shard))) == 1

    with_place(scenario)


def test_who_came_just_before_a_change_is_waited_for() -> None:
    """Though this broker has not looked since: whoever came may do as the topics said before."""

    async def scenario(place: Place) -> None:
        is_free = asyncio.Event()

        async def look_later(what: Sequence[Operation] | str) -> None:
            if what == TREE.shards:
                await is_free.wait()

        place.session.before = look_later
        two = await Player(place.zoo, 2).come()
        changing = asyncio.create_task(
            SharedChanges(place.cluster, place.hosted).create("t", 1, {}, [1])
        )
        await place.turns()
        assert not changing.done()
        await two.topics.refresh()
        await two.topics.tell_applied(AppliedDoc(value=two.topics.version))
        assert not isinstance(await changing, Refusal)
        is_free.set()

    with_place(scenario)


async def killed_with_a_commit(place: Place) -> Player:
    """Broker 2, whose session lasts on; g, whose shard it had, has committed 5 of topic t."""
    await SharedChanges(place.cluster, place.hosted).create("t", 1, {}, [1])
    await place.owns()
    two = await Player(place.zoo, 2).come()
    shard = shard_of("g", SHARDS)
    assert await two.store(await two.take(shard), committed(5)) == [None]
    await until(lambda: not place.cluster.holds(shard))
    return two


def test_a_topic_made_anew_waits_until_a_dead_brokers_groups_have_forgotten_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The dead broker's shard is taken over when its session is over, and the topic's name must not
    stand for another topic by then.
    """
    monkeypatch.setattr(cluster, "_APPLIED_WITHIN_S", 0.01)

    async def scenario(place: Place) -> None:
        two = await killed_with_a_commit(place)
        changes = SharedChanges(place.cluster, place.hosted)
        assert not isinstance(await changes.delete("t"), Refusal)
        making = asyncio.create_task(changes.create("t", 1, {}, [1]))
        await asyncio.sleep(0.3)  # it is asked again each tenth of a second
        assert not making.done()
        place.zoo.expire(two.session)
        assert not isinstance(await making, Refusal)
        host = await place.owns()
        assert host.shard.offsets.get("g", {}) == {}
        assert await place.player.session.children(TREE.tombstones) == []

    with_place(scenario)


def test_a_topic_is_not_made_anew_while_a_broker_could_take_it_for_the_former(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would take commits for the new one, and forget them when it follows the deletion."""
    monkeypatch.setattr(cluster, "_APPLIED_WITHIN_S", 0.01)
    monkeypatch.setattr(shared_changes, "_FORGOTTEN_WITHIN_S", 0.0)

    async def scenario(place: Place) -> None:
        two = await killed_with_a_commit(place)
        await two.look()
        await two.roster.take(two.roster.wanted()[0])
        changes = SharedChanges(place.cluster, place.hosted)
        assert not isinstance(await changes.delete("t"), Refusal)
        refused = await changes.create("t", 1, {}, [1])
        assert isinstance(refused, Refusal)
        assert refused.code is ErrorCode.REQUEST_TIMED_OUT
        assert "t was deleted" in refused.message
        await two.topics.refresh()
        version = two.topics.version
        await two.topics.tell_applied(AppliedDoc(value=version, forgot=version))
        assert isinstance(await changes.create("t", 1, {}, [1]), Refusal)
        epochs = {shard: two.roster.shards[shard].epoch for shard in two.roster.owned()}
        told = AppliedDoc(value=version, forgot=version, shards=epochs)
        await two.topics.tell_applied(told)
        monkeypatch.setattr(shared_changes, "_FORGOTTEN_WITHIN_S", 15)
        assert not isinstance(await changes.create("t", 1, {}, [1]), Refusal)

    with_place(scenario)


def test_shards_are_taken_over_while_topics_are_followed() -> None:
    async def scenario(place: Place) -> None:
        two = await Player(place.zoo, 2).come()
        await until(lambda: not all(place.cluster.holds(shard) for shard in range(SHARDS)))
        place.disk.occupy()
        try:
            await two.topics.put("t", made("11" * 16, 1), "n")
            assert await asyncio.to_thread(place.disk.asked.wait, WITHIN_S)
            place.zoo.expire(two.session)
            await until(lambda: all(place.cluster.holds(shard) for shard in range(SHARDS)))
            assert place.hosted.topic("t") is None
        finally:
            place.disk.free()
        await until(lambda: place.hosted.topic("t"))

    with_place(scenario)


def test_who_cannot_follow_the_topics_ends_with_the_reason() -> None:
    async def scenario(place: Place) -> None:
        two = await Player(place.zoo, 2).come()
        await two.topics.put("t", made("11" * 16, 2), "n1")
        await until(lambda: place.hosted.topic("t"))
        touch = SetData(TREE.topics, encode(TopicsDoc(recent=("t",), nonces=("n2",))))
        await two.session.transact([touch, SetData(TREE.topic("t"), b"what is this?")])
        assert "topics/t in ZooKeeper cannot be read" in str(await place.fatal)
        assert not any(place.cluster.holds(shard) for shard in range(SHARDS))

    with_place(scenario)


def test_a_lease_that_cannot_be_renewed_ends_the_broker_with_the_reason() -> None:
    """It would be up for the others, and answer for no group ever again."""

    async def scenario(place: Place) -> None:
        async def refuse(what: Sequence[Operation] | str) -> None:
            if what == "/":
                raise Refused(0, Why.OTHER, "ZooKeeper refused it: MarshallingError")

        place.session.before = refuse
        assert str(await place.fatal) == "ZooKeeper refused it: MarshallingError"
        assert not any(place.cluster.holds(shard) for shard in range(SHARDS))

    with_place(scenario, timeout_ms=40)


def test_a_session_that_ends_while_its_connection_is_lost_is_followed_by_another() -> None:
    """Whatever of the broker asks just then."""

    async def scenario(place: Place) -> None:
        begun = asyncio.Event()

        async def begin(*told: object) -> object:
            begun.set()
            return place.connect()

        place.patch.setattr(KazooSession, "begin", begin)

        async def lose(what: Sequence[Operation] | str) -> None:
            if what == "/":
                place.zoo.expire(place.session)
                raise InDoubt("the connection was lost")

        place.session.before = lose
        await begun.wait()
        await place.owns()
        assert not place.fatal.done()

    with_place(scenario, timeout_ms=40)


def test_a_shard_is_not_taken_back_from_who_has_it_now() -> None:
    """A log is opened anew while it is read that another broker has come and has the shard."""

    async def scenario(place: Place) -> None:
        await place.owns()
        shard = shard_of("g", SHARDS)
        other = await Player(place.zoo, 2).come()
        await other.take(shard)
        await place.cluster.roster.refresh(lambda: None)
        with pytest.raises(OSError, match="not this broker's any more"):
            await place.cluster.stores[shard].open_again()
        await other.look()
        assert other.roster.owner(shard) == 2

    with_place(scenario)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]


@pytest.mark.parametrize(
    ("ahead_ms", "told"),
    [(-10_000, ["10.0 s behind"]), (-1_000, []), (1_000, []), (10_000, ["10.0 s ahead of"])],
)
def test_clocks_that_disagree_get_a_warning(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    ahead_ms: int,
    told: list[str],
) -> None:
    Wall(monkeypatch, ahead_ms)

    async def played() -> None:
        place = await Place().come()
        await place.leave()

    play(played())
    assert warnings(caplog) == [
        f"this machine's clock is {each} ZooKeeper's: retention and timestamps of records will "
        "differ between brokers; set the clocks by NTP"
        for each in told
    ]


def test_who_takes_long_to_arrive_does_not_take_the_clocks_to_disagree(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It registers at a first try, whose end is in doubt; at the second a minute has passed."""
    wall = Wall(monkeypatch)
    losing = lost()

    async def lose(what: Sequence[Operation] | str) -> None:
        if what == TREE.shards:
            wall.now_ms = NOW_MS + 60_000
            await losing([])

    async def played() -> None:
        place = Place()
        place.before = lose
        await place.come()
        await place.leave()

    play(played())
    assert warnings(caplog) == []
