"""Brokers of the first design with a real ZooKeeper: election, expiry, watches and stored nodes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from cluster.zookeeper_ensemble import Ensemble
from partage.broker.cluster.cluster_session import ZooKeeperUnreachableError
from partage.broker.cluster.kazoo_session import KazooSession
from partage.broker.cluster.state_address import StateAddress
from partage.proposals.broker_side.frames import decode_response
from partage.proposals.broker_side.messages import (
    ClusterMetadataRequest,
    ClusterMetadataResponse,
    PartitionOffset,
    PingRequest,
    PingResponse,
    StartFetcherRequest,
)
from partage.proposals.broker_side.records import (
    CONSUMER_ID_BYTES_MAX,
    ConsumedOffsetRecord,
    OwnerRecord,
)
from partage.proposals.broker_side.settings import PushCoordinatorSettings
from partage.proposals.sockets.broker_side.foreground import serve_broker
from partage.proposals.sockets.broker_side.push_broker import (
    PushBroker,
    PushBrokerIdInUseError,
    PushBrokerOptions,
)
from partage.proposals.sockets.broker_side.zookeeper_nodes import ZooKeeperNodes, split_writes
from partage.proposals.sockets.foreground import ForegroundError
from partage.store.zookeeper import Create, RefusedError
from polled_conditions import eventually_async
from proposals.sockets.test_broker_side_faults import RawConsumer

WAIT_S = 60.0
SESSION_MS = 4_000
NOBODY = [make_digest_acl("nobody", "secret", all=True)]


class Stage:
    """Brokers of one test in this process."""

    def __init__(self, zookeeper: Ensemble, path: str) -> None:
        self.state = StateAddress(servers=zookeeper.connect_string, path=path)
        self.topics = {"t": 2}
        self.brokers: list[PushBroker] = []
        self.consumers: list[RawConsumer] = []

    async def _topics(self) -> dict[str, int]:
        return self.topics

    def options(self, broker_id: int, port: int = 0) -> PushBrokerOptions:
        return PushBrokerOptions(
            state=self.state,
            settings=PushCoordinatorSettings(
                broker_id=broker_id, session_timeout_min_ms=100, offset_commit_interval_ms=50
            ),
            host="127.0.0.1",
            port=port,
            zookeeper_session_timeout_ms=SESSION_MS,
            topic_source=self._topics,
            topic_refresh_ms=10,
        )

    async def broker(self, broker_id: int, port: int = 0) -> PushBroker:
        broker = await PushBroker.start(self.options(broker_id, port))
        self.brokers.append(broker)
        return broker

    async def consumer(self, broker: PushBroker) -> RawConsumer:
        consumer = RawConsumer(*await asyncio.open_connection(*broker.address))
        self.consumers.append(consumer)
        return consumer

    async def elected(self, broker: PushBroker) -> None:
        """Return when a broker is the coordinator and knows the topics."""
        await eventually_async(
            lambda: broker.is_coordinator and broker.machine.topics == self.topics
        )

    async def nodes(self) -> tuple[KazooSession, ZooKeeperNodes]:
        session = await KazooSession.begin(self.state.servers, SESSION_MS, WAIT_S)
        return session, ZooKeeperNodes(session, self.state.path)

    async def close(self) -> None:
        for consumer in self.consumers:
            consumer.close()
        for broker in self.brokers:
            await broker.stop()


Run = Callable[[Callable[[Stage], Awaitable[None]]], None]


@pytest.fixture
def run(
    zookeeper: Ensemble, tmp_path: Path
) -> Callable[[Callable[[Stage], Awaitable[None]]], None]:
    def start(play: Callable[[Stage], Awaitable[None]]) -> None:
        async def whole() -> None:
            stage = Stage(zookeeper, f"/proposals/{tmp_path.name}")
            try:
                await play(stage)
            finally:
                await stage.close()

        asyncio.run(whole())

    return start


async def metadata(stage: Stage, broker: PushBroker) -> ClusterMetadataResponse:
    consumer = await stage.consumer(broker)
    consumer.send(ClusterMetadataRequest())
    frame = await consumer.frame()
    assert frame is not None
    response = decode_response(frame, ClusterMetadataResponse)
    assert isinstance(response, ClusterMetadataResponse)
    return response


async def _expire(stage: Stage, broker: PushBroker) -> None:
    """End a broker's session as ZooKeeper does: another client takes it over and closes it."""
    session = broker._session
    assert session is not None
    thief = KazooClient(stage.state.servers, client_id=session._client.client_id)
    await asyncio.to_thread(thief.start)
    await asyncio.to_thread(thief.stop)
    await asyncio.to_thread(thief.close)


def test_one_broker_is_elected_and_all_brokers_name_it(run: Run) -> None:
    async def play(stage: Stage) -> None:
        first = await stage.broker(1)
        await stage.elected(first)
        second = await stage.broker(2)
        await eventually_async(
            lambda: (
                all(len(each.machine.brokers) == 2 for each in stage.brokers)
                and second.machine.coordinator_id == 1
            )
        )
        for each in stage.brokers:
            response = await metadata(stage, each)
            assert response.coordinator_id == 1
            assert [(b.id, b.host, b.port) for b in response.brokers_info] == [
                (1, *first.address),
                (2, *second.address),
            ]
        assert not second.is_coordinator

    run(play)


def test_expired_session_moves_the_coordinator_and_its_records(run: Run) -> None:
    async def play(stage: Stage) -> None:
        first = await stage.broker(1)
        await stage.elected(first)
        second = await stage.broker(2)
        consumer = await stage.consumer(first)
        await consumer.start("g")
        while not isinstance(await consumer.request(), PingRequest):
            pass
        offset = PartitionOffset(topic="t", partition="1-0", offset=7)
        consumer.send(PingResponse(consumer_id="c", offset_info=[offset]))
        group = first.machine.groups["g"]
        await eventually_async(lambda: group.offsets and not group.uncommitted and group.owners)
        await first.server.flush()
        await _expire(stage, first)
        await stage.elected(second)
        while await consumer.request() is not None:  # until the connection is closed
            pass
        await eventually_async(lambda: second.machine.groups["g"].awaited == {"c": 9_000})
        returned = await stage.consumer(second)
        started = await returned.start("g")
        assert isinstance(started, StartFetcherRequest)
        parts = [part for thread in started.ownership_info for part in thread.assigned_parts]
        assert [(part.partition, part.offset) for part in parts] == [("2-0", 7), ("2-1", -1)]
        # The first broker has another session, and follows.
        await eventually_async(lambda: first.machine.coordinator_id == 2)
        assert not first.is_coordinator

    run(play)


def test_stopped_coordinator_commits_and_another_broker_follows(run: Run) -> None:
    async def play(stage: Stage) -> None:
        first = await stage.broker(1)
        await stage.elected(first)
        second = await stage.broker(2)
        await first.stop()
        await stage.elected(second)
        assert (await metadata(stage, second)).coordinator_id == 2

    run(play)


def test_deleted_node_of_a_live_coordinator_causes_an_election(run: Run) -> None:
    async def play(stage: Stage) -> None:
        first = await stage.broker(1)
        await stage.elected(first)
        consumer = await stage.consumer(first)
        await consumer.start("g")
        client = KazooClient(stage.state.servers)
        await asyncio.to_thread(client.start)
        client.delete(f"{stage.state.path}/consumers/coordinator")
        while await consumer.request() is not None:  # until the connection is closed
            pass
        await stage.elected(first)
        client.stop()
        client.close()

    run(play)


def test_new_topics_and_partitions_reach_the_coordinator(run: Run) -> None:
    async def play(stage: Stage) -> None:
        broker = await stage.broker(1)
        await stage.elected(broker)
        consumer = await stage.consumer(broker)
        await consumer.start("g")
        for topics in ({"t": 5}, {"t": 5, "u": 1_200}):
            stage.topics = topics
            await stage.elected(broker)

    run(play)


def test_topic_that_is_deleted_and_created_again_is_watched(run: Run) -> None:
    async def play(stage: Stage) -> None:
        stage.topics = {}
        broker = await stage.broker(1)
        await eventually_async(lambda: broker.is_coordinator)
        session, nodes = await stage.nodes()
        client = KazooClient(stage.state.servers)
        try:
            await asyncio.to_thread(client.start)
            topic = f"{stage.state.path}/brokers/topics/u"
            for count in (3, 2):
                await nodes.add_topics({"u": count})
                await eventually_async(lambda count=count: broker.machine.topics == {"u": count})
                await asyncio.to_thread(client.delete, topic, recursive=True)
                await eventually_async(lambda: broker.machine.topics == {})
                nodes.forget_topic("u")
            # The broker creates the nodes of a deleted topic again, if Kafka still has it.
            stage.topics = {"t": 2}
            await stage.elected(broker)
            topic = f"{stage.state.path}/brokers/topics/t"
            created_ms = client.get(topic)[1].ctime
            await asyncio.to_thread(client.delete, topic, recursive=True)
            await eventually_async(
                lambda: (node := client.exists(topic)) is not None and node.ctime > created_ms
            )
            await stage.elected(broker)
        finally:
            client.stop()
            client.close()
            await session.end()

    run(play)


def test_topics_that_cannot_be_read_stop_the_broker(run: Run) -> None:
    async def play(stage: Stage) -> None:
        broker = await stage.broker(1)
        await stage.elected(broker)
        client = KazooClient(stage.state.servers)
        await asyncio.to_thread(client.start)
        try:
            client.create(f"{stage.state.path}/brokers/topics/secret", acl=NOBODY)
            error = await asyncio.wait_for(broker.wait_failed(), WAIT_S)
        finally:
            client.stop()
            client.close()
        assert isinstance(error, RefusedError)

    run(play)


def test_zookeeper_that_refuses_the_registration_is_reported_in_one_line(run: Run) -> None:
    async def play(stage: Stage) -> None:
        client = KazooClient(stage.state.servers)
        await asyncio.to_thread(client.start)
        client.ensure_path("/proposals")
        client.create(stage.state.path, acl=NOBODY)
        client.stop()
        client.close()
        with pytest.raises(ForegroundError, match="cannot register in ZooKeeper") as caught:
            await serve_broker(stage.options(1), lambda address: None)
        assert "\n" not in str(caught.value)

    run(play)


def test_owners_with_long_ids_fit_into_transactions(run: Run) -> None:
    """ZooKeeper closes the connection after a request of more than 1 MB."""
    consumer_id = "\0" * CONSUMER_ID_BYTES_MAX  # each byte has six characters in JSON
    owners = [
        OwnerRecord(group_id="g", topic="t", partition=number, thread=f"{consumer_id}-0")
        for number in range(400)
    ]

    async def play(stage: Stage) -> None:
        session, nodes = await stage.nodes()
        try:
            await asyncio.wait_for(nodes.store(owners), WAIT_S)
            assert sorted(await nodes.load(), key=lambda each: each.partition) == owners
        finally:
            await session.end()

    run(play)


def test_writes_are_split_by_their_size() -> None:
    wanted = {f"/{number}": b"x" * 100_000 for number in range(10)}
    parts = list(split_writes(wanted))
    assert [len(part) for part in parts] == [4, 4, 2]
    assert {path: data for part in parts for path, data in part.items()} == wanted
    deleted: dict[str, bytes | None] = {f"/{number}": None for number in range(1_200)}
    assert [len(part) for part in split_writes(deleted)] == [500, 500, 200]
    assert list(split_writes({})) == []


def test_records_are_read_as_they_were_stored(run: Run) -> None:
    offsets = [
        ConsumedOffsetRecord(group_id="g", topic="t", partition=number, offset=number)
        for number in range(3)
    ]
    owner = OwnerRecord(
        group_id="h", topic="t", partition=0, thread="c-0", session_timeout_ms=7_000
    )
    without = OwnerRecord(group_id="h", topic="t", partition=0, thread=None)

    async def play(stage: Stage) -> None:
        session, nodes = await stage.nodes()
        other_session, other = await stage.nodes()
        try:
            await nodes.store([*offsets, owner])
            assert sorted(await nodes.load(), key=repr) == sorted([*offsets, owner], key=repr)
            # Another session does not know which nodes exist, and an operator deletes some.
            later = ConsumedOffsetRecord(group_id="g", topic="t", partition=2, offset=9)
            await other.store([offsets[0], later, without])
            assert await other.load() == [*offsets[:2], later, owner]
            await other.store([without])
            assert await nodes.load() == [*offsets[:2], later]
            await nodes.store([without, owner, without])  # the last one counts
            await nodes.store([owner])
            assert owner in await other.load()
        finally:
            await session.end()
            await other_session.end()

    run(play)


def test_damaged_nodes_are_ignored(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def play(stage: Stage) -> None:
        session, nodes = await stage.nodes()
        try:
            for below, data in (
                ("/consumers/g/offsets/t/0", b"many"),
                ("/consumers/g/offsets/t/1", b"-3"),
                ("/consumers/g/offsets/t/x", b"1"),
                ("/consumers/g/owners/t/0", b"{}"),
                ("/brokers/ids/1", b"[]"),
            ):
                await nodes.ensure(nodes.path(below.rpartition("/")[0]))
                await session.transact([Create(nodes.path(below), data)])
            assert await nodes.load() == []
            assert await nodes.brokers(lambda: None) == ()
            assert len(caplog.records) == 5
        finally:
            await session.end()

    run(play)


def test_unreachable_zookeeper_is_reported() -> None:
    async def play() -> None:
        options = PushBrokerOptions(
            state=StateAddress(servers="127.0.0.1:1", path="/p"),
            settings=PushCoordinatorSettings(),
            host="127.0.0.1",
            port=0,
        )
        with pytest.raises(ZooKeeperUnreachableError, match=r"127\.0\.0\.1:1"):
            await PushBroker.start(options, connect_timeout_s=0.1)

    asyncio.run(play())


def test_address_in_use_is_reported_before_the_election(run: Run) -> None:
    async def play(stage: Stage) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            with pytest.raises(OSError, match="in use"):
                await stage.broker(1, taken.getsockname()[1])
        await stage.elected(await stage.broker(2))

    run(play)


def test_broker_id_of_a_live_broker_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "partage.proposals.sockets.broker_side.push_broker._PREDECESSOR_EXTRA_S", -SESSION_MS / 1000
    )

    async def play(stage: Stage) -> None:
        await stage.broker(1)
        with pytest.raises(PushBrokerIdInUseError, match="broker id 1 belongs"):
            await stage.broker(1)

    run(play)
