"""The membership of a broker, on a ZooKeeper in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from broker.test_topic_reconciler import BrokerFixture
from partage.broker.clock import Clock
from partage.broker.cluster.broker_node import BrokerNode
from partage.broker.cluster.cluster_membership import ClusterMembership
from partage.broker.cluster.registry_view import RegistryView
from partage.broker.cluster.state_address import StateAddress
from partage.broker.cluster.topic_reconciler import TopicReconciler
from partage.broker.coordination.group_coordinator import GroupCoordinator
from partage.broker.coordination.shard_host import ShardHost
from partage.broker.ids import RANDOM_IDS
from partage.model.settings import BrokerSettings, GroupSettings
from partage.store.memory import SessionFault, lose_transactions
from partage.store.shard_log import shard_of
from partage.store.zk_schema import ClusterDoc
from partage.store.zookeeper import InDoubtError, Operation, RefusalReason, RefusedError
from store.zk_fixture import PATHS, SHARDS, BrokerStores, run

WITHIN_S = 60
NOW_MS = 1_700_000_000_000
NODE = BrokerNode(node_id=1, host="h", port=1, cluster_id="the cluster", rack=None)
FOUND = ClusterDoc(partage=1, cluster_id="the cluster", shards=SHARDS, transaction_shards=0)


class SettableClock(Clock):
    """Clocks with a set time of the epoch, and an offset to the time since the machine's start."""

    def __init__(self) -> None:
        super().__init__()
        self.set_wall_ms = NOW_MS
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        return self.set_wall_ms

    def boot_ms(self) -> int:
        return super().boot_ms() + self.ahead_ms


async def until(what: Callable[[], object]) -> None:
    while not what():  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)


class MembershipFixture(BrokerFixture):
    """Broker 1 without its sockets; ``fatal`` is the error that ended it."""

    def __init__(self, timeout_ms: int = 6_000) -> None:
        self.timeout_ms = timeout_ms
        self.clock = SettableClock()
        self.before: SessionFault | None = None  # for the session, from its start
        self.later_session = asyncio.Event()  # set when the first session was replaced
        self.patch = pytest.MonkeyPatch()

    async def start(self) -> MembershipFixture:
        await super().start()
        self.zoo.now_ms = NOW_MS
        await self.player.roster.unregister()
        self.connect()
        loop = asyncio.get_running_loop()
        self.fatal: asyncio.Future[BaseException] = loop.create_future()
        address = StateAddress(servers="memory", path=PATHS.root)
        self.cluster = ClusterMembership(
            address,
            BrokerSettings(node_id=1),
            self.clock,
            RANDOM_IDS,
            self.begin_session,
            self.session,
            FOUND,
            "d",
            self.fatal.set_result,
        )
        self.hosts = [
            ShardHost(f"shard {n}", store, GroupSettings(), Clock(), lambda notice: None)
            for n, store in enumerate(self.cluster.stores)
        ]
        self.coordinator = GroupCoordinator(self.hosts)
        await self.cluster.start(NODE, self.hosted, self.coordinator)
        return self

    async def owns(self, group_id: str = "g") -> ShardHost:
        """Return the host of a group's shard, once it is loaded."""
        host = self.coordinator.host_of(group_id)
        await until(lambda: host.shard is not None)
        return host

    async def turns(self) -> None:
        """Run the loop long enough for all work that does not wait for time."""
        for _ in range(200):
            await asyncio.sleep(0)

    async def begin_session(self, address: StateAddress, settings: BrokerSettings) -> Any:
        self.later_session.set()
        return self.connect()

    def connect(self) -> object:
        session: Any = self.zoo.connect(self.timeout_ms)
        session.started_ms = self.clock.boot_ms()

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


def run_scenario(
    scenario: Callable[[MembershipFixture], Awaitable[None]], timeout_ms: int = 6_000
) -> None:
    async def played() -> None:
        place = await MembershipFixture(timeout_ms).start()
        try:
            await asyncio.wait_for(scenario(place), WITHIN_S)
        finally:
            await place.leave()

    run(played())


def test_are_up_sees_new_broker_before_watch() -> None:
    """Even before the watch has fired."""

    async def scenario(place: MembershipFixture) -> None:
        seen = RegistryView(place.cluster)
        assert await seen.are_up([1])
        assert not await seen.are_up([1, 2])
        place.zoo._child_watches.clear()
        await BrokerStores(place.zoo, 2).register()
        assert not seen.is_up(2)
        assert await seen.are_up([1, 2])
        assert [node.node_id for node in seen.brokers()] == [1, 2]

    run_scenario(scenario)


def test_lease_renewal_failure_stops_broker() -> None:
    """Otherwise it would stay registered without ever serving its groups again."""

    async def scenario(place: MembershipFixture) -> None:
        async def refuse(what: Sequence[Operation] | str) -> None:
            if what == "/":
                raise RefusedError(0, RefusalReason.OTHER, "ZooKeeper refused it: MarshallingError")

        place.session.before = refuse
        assert str(await place.fatal) == "ZooKeeper refused it: MarshallingError"
        for _ in range(100):
            assert not any(place.cluster.owns(shard) for shard in range(SHARDS))
            await asyncio.sleep(0)

    run_scenario(scenario, timeout_ms=40)


def test_slow_reconciliation_keeps_lease_valid() -> None:
    """Its lease is renewed from the start of the session."""
    follow, timeout_ms = TopicReconciler.reconcile, 400

    async def slowly(self: TopicReconciler, *topics: Any, **first: bool) -> None:
        await follow(self, *topics, **first)
        if first["is_first"]:
            await asyncio.sleep(timeout_ms * 1.5 / 1000)  # leases use the clock of the machine

    async def played() -> None:
        place = MembershipFixture(timeout_ms)
        with place.patch.context() as patch:
            patch.setattr(TopicReconciler, "reconcile", slowly)
            await place.start()
        await until(lambda: place.cluster.owns(0))
        answers = place.cluster.stores[0].may_answer()
        await place.leave()
        assert answers

    run(played())


def test_suspended_beyond_session_sends_no_responses() -> None:
    """Even before it knows that the session has ended."""

    async def scenario(place: MembershipFixture) -> None:
        host = await place.owns()
        store = place.cluster.stores[shard_of("g", SHARDS)]
        assert store.may_answer()
        place.clock.ahead_ms = place.timeout_ms
        assert not store.may_answer()
        assert host.shard is not None

    run_scenario(scenario)


def test_session_end_while_disconnected_starts_new_session() -> None:
    """With any request that the broker sends at that moment."""

    async def scenario(place: MembershipFixture) -> None:
        async def lose(what: Sequence[Operation] | str) -> None:
            if what == "/":
                place.zoo.expire(place.session)
                raise InDoubtError("the connection was lost")

        place.session.before = lose
        await place.later_session.wait()
        await place.owns()
        assert not place.fatal.done()

    run_scenario(scenario, timeout_ms=40)


def test_reacquire_shard_of_other_broker_is_refused() -> None:
    """A log is reopened while the registry update shows that another broker owns the shard."""

    async def scenario(place: MembershipFixture) -> None:
        await place.owns()
        shard = shard_of("g", SHARDS)
        other = await BrokerStores(place.zoo, 2).register()
        await other.acquire(shard)
        await place.cluster.registry.refresh(lambda: None)
        with pytest.raises(OSError, match="this broker no longer owns shard"):
            await place.cluster.stores[shard].reopen()
        await other.refresh()
        assert other.roster.owner(shard) == 2

    run_scenario(scenario)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]


@pytest.mark.parametrize(
    ("ahead_ms", "told"),
    [(-10_000, ["10.0 s behind"]), (-1_000, []), (1_000, []), (10_000, ["10.0 s ahead of"])],
)
def test_clock_skew_logs_warning(
    caplog: pytest.LogCaptureFixture, ahead_ms: int, told: list[str]
) -> None:
    async def played() -> None:
        place = MembershipFixture()
        place.clock.set_wall_ms += ahead_ms
        await place.start()
        await place.leave()

    run(played())
    assert warnings(caplog) == [
        f"this machine's clock is {each} ZooKeeper's clock: retention and timestamps of records "
        "will differ between brokers; synchronize the clocks (NTP)"
        for each in told
    ]


def test_lost_connection_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(place: MembershipFixture) -> None:
        caplog.clear()
        place.session.on_suspended()
        place.session.on_connected()
        lost, back = caplog.messages
        assert lost == "lost the connection to ZooKeeper: groups are paused"
        assert back.startswith("reconnected to ZooKeeper after")

    caplog.set_level(logging.INFO, "partage")
    run_scenario(scenario)


def test_slow_registration_is_not_clock_skew(caplog: pytest.LogCaptureFixture) -> None:
    """Its first registration has an unknown outcome; at the second try a minute has passed."""
    losing = lose_transactions()

    async def played() -> None:
        place = MembershipFixture()

        async def lose(what: Sequence[Operation] | str) -> None:
            if what == PATHS.shards:
                place.clock.set_wall_ms = NOW_MS + 60_000
                await losing([])

        place.before = lose
        await place.start()
        await place.leave()

    run(played())
    assert warnings(caplog) == []
