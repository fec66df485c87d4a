"""Brokers that cannot join a cluster say why, and change nothing.

`cluster.test_world_refusals` has refusals that end with the session of another broker.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from free_ports import free_ports
from partage.broker.cluster.facade import SHARDS_MAX
from partage.broker.cluster.kazoo_session import KazooSession
from partage.broker.cluster.state_address import StateAddress, StateAddressError, parse_state
from partage.model.settings import GroupSettings
from partage.store.bootstrap import find_or_create_cluster
from partage.store.cluster_registry import ClusterRegistry
from partage.store.shard_log import encode_records, replay
from partage.store.shared_log import SharedLog
from partage.store.write_batcher import ShardFencedError, WriteBatcher
from partage.store.zk_schema import BrokerDoc, ZkPaths
from partage.store.zookeeper import (
    Check,
    Create,
    Delete,
    Operation,
    RefusalReason,
    RefusedError,
    SessionEndedError,
    SetData,
    StoreError,
)
from polled_conditions import PATIENCE_S
from store.zk_fixture import committed, large_group

from .brokers import ClusterBroker, brokers
from .zookeeper_ensemble import Ensemble

pytestmark = [pytest.mark.xdist_group("zookeeper"), pytest.mark.timeout(600)]


def in_session(servers: str, play: Callable[[KazooSession], Awaitable[Any]]) -> Any:
    """Run a function in a new session."""

    async def playing() -> Any:
        session = await KazooSession.begin(servers, 10_000, PATIENCE_S)
        try:
            return await play(session)
        finally:
            await session.end()

    return asyncio.run(playing())


def make(servers: str, *operations: Operation) -> None:
    async def making(session: KazooSession) -> None:
        for operation in operations:
            await session.transact([operation])

    in_session(servers, making)


def tree(servers: str, path: str) -> dict[str, bytes]:
    """Return all nodes under a path except ephemeral ones."""

    async def reading(session: KazooSession) -> dict[str, bytes]:
        found = {}
        waiting = [path]
        while waiting:
            at = waiting.pop()
            node = await session.read(at)
            if node is not None and not node.session:
                found[at] = node.data
                waiting += [f"{at}/{name}" for name in await session.children(at)]
        return found

    result: dict[str, bytes] = in_session(servers, reading)
    return result


@pytest.mark.parametrize(
    ("text", "servers", "path"),
    [
        ("zookeeper://h:2181/partage", "h:2181", "/partage"),
        ("zookeeper://a:1,b:2,c:3/deep/er/", "a:1,b:2,c:3", "/deep/er"),
        ("zookeeper://[::1]:2181/p", "[::1]:2181", "/p"),
        ("zookeeper://[::1]:1,h:65535,[fe80::1]:3/p", "[::1]:1,h:65535,[fe80::1]:3", "/p"),
    ],
)
def test_parse_state(text: str, servers: str, path: str) -> None:
    assert parse_state(text) == StateAddress(servers=servers, path=path)


@pytest.mark.parametrize(
    "text",
    [
        "h:2181/partage",
        "etcd://h:1/p",
        "zookeeper://h/partage",
        "zookeeper://h:2181",
        "zookeeper://h:2181/",
        "zookeeper://h:2181/a//b",
        "zookeeper://h:2181/a/../b",
        "zookeeper://h:2181/zookeeper/x",
        "zookeeper://h:2181/a b",
        "zookeeper:///a",
        "zookeeper://h:0/a",
        "zookeeper://h:65536/a",
        "zookeeper://h:1,/a",
        "zookeeper://h:1,[::1]/a",
        "zookeeper://[h]:1/a",
        "zookeeper://::1:2181/a",
    ],
)
def test_parse_state_invalid_is_refused(text: str) -> None:
    with pytest.raises(StateAddressError, match="expected zookeeper://HOST:PORT/PATH"):
        parse_state(text)


def test_state_without_broker_id_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "partage", "broker", "--data-dir", str(tmp_path / "d")]
    done = subprocess.run(
        [*command, "--state", "zookeeper://127.0.0.1:1/p"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2
    assert "add --broker-id N" in done.stderr
    assert not (tmp_path / "d").exists()


def test_state_with_ephemeral_is_refused(tmp_path: Path) -> None:
    """In memory they would be lost at each start, and committed offsets would be reused."""
    broker = ClusterBroker(1, tmp_path / "d", "zookeeper://127.0.0.1:1/p", {})
    done = subprocess.run(
        [*broker.command(), "--ephemeral"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2
    assert "--state cannot be combined with --ephemeral" in " ".join(done.stderr.split())


def test_missing_kazoo_names_package(tmp_path: Path) -> None:
    """It comes with an extra, which a single broker does not need."""
    program = "import sys; sys.modules['kazoo'] = None; from partage.console import main; main()"
    broker = ClusterBroker(1, tmp_path / "b", "zookeeper://127.0.0.1:1/p", {})
    done = subprocess.run(
        [sys.executable, "-c", program, *broker.command()[3:]],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install 'partage[zookeeper]'" in done.stderr


def test_too_many_shards_are_refused(tmp_path: Path) -> None:
    """It is refused without a request: ZooKeeper would drop the connection each time."""
    broker = ClusterBroker(
        1,
        tmp_path / "b",
        "zookeeper://127.0.0.1:1/p",
        {"offsets.topic.num.partitions": f"{SHARDS_MAX - 2}"},
    )
    assert "offsets.topic.num.partitions is 998 and" in broker.start_refused()


@pytest.mark.interop
def test_unreachable_zookeeper_is_reported(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    broker = ClusterBroker(1, tmp_path / "b", f"zookeeper://127.0.0.1:{port}/p", {})
    story = broker.start_refused()
    assert f"started to connect to ZooKeeper: servers=127.0.0.1:{port} timeout_s=10" in story
    assert f"no ZooKeeper server answers at 127.0.0.1:{port}" in story


@pytest.mark.parametrize(
    "made",
    [
        [Create("/kafka"), Create("/kafka/brokers"), Create("/kafka/controller", b"x")],
        [Create("/kafka", b"hello")],
    ],
    ids=["nodes", "data"],
)
def test_path_with_foreign_data_is_refused(
    zookeeper: Ensemble, tmp_path: Path, made: list[Create]
) -> None:
    make(zookeeper.connect_string, *made)
    before = tree(zookeeper.connect_string, "/kafka")
    broker = ClusterBroker(1, tmp_path / "b", f"zookeeper://{zookeeper.connect_string}/kafka", {})
    assert "/kafka in ZooKeeper holds other data than a Partage cluster" in broker.start_refused()
    assert tree(zookeeper.connect_string, "/kafka") == before
    make(zookeeper.connect_string, *(Delete(each.path) for each in reversed(made)))


@pytest.mark.interop
def test_mismatched_brokers_are_refused(zookeeper: Ensemble, tmp_path: Path) -> None:
    """An id in use, the data of another broker, of another cluster, or of a single broker."""
    servers = zookeeper.connect_string
    with (
        brokers(tmp_path, servers, "/tests/door", ids=(1,)) as door,
        brokers(tmp_path / "other", servers, "/tests/other", ids=(2,)) as other,
    ):
        other[2].stop()
        before = tree(servers, "/tests/door")
        state = f"zookeeper://{servers}/tests/door"

        same_id = ClusterBroker(1, tmp_path / "new", state, {})
        story = same_id.start_refused()
        assert f"broker id 1 is in use by the broker at {door[1].address}" in story
        assert "--broker-id" in story

        stranger = ClusterBroker(2, other[2].directory, state, {})
        assert "but /tests/door in ZooKeeper holds cluster" in stranger.start_refused()

        moved = ClusterBroker(2, other[2].directory, f"zookeeper://{servers}/tests/nothing", {})
        assert "/tests/nothing in ZooKeeper is empty" in moved.start_refused()

        renamed = ClusterBroker(3, other[2].directory, f"zookeeper://{servers}/tests/other", {})
        assert "the data directory belongs to broker 2" in renamed.start_refused()

        alone = [sys.executable, "-m", "partage", "broker", "--listen", "127.0.0.1:0"]
        done = subprocess.run(
            [*alone, "--data-dir", str(other[2].directory)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 1
        assert "belongs to broker 2 of a cluster" in done.stderr

        single = tmp_path / "single"
        with subprocess.Popen(
            [*alone, "--data-dir", str(single)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline()
            process.send_signal(signal.SIGTERM)
        joining = ClusterBroker(5, single, state, {})
        assert "belongs to a single broker without a cluster" in joining.start_refused()

        assert door[1].is_running
        after = tree(servers, "/tests/door")
        assert after == before
        assert tree(servers, "/tests/nothing") == {}


# The session, on a real server.


def test_maximum_shards_fit_one_transaction(zookeeper: Ensemble) -> None:
    async def found(session: KazooSession) -> int:
        root = "/tests/" + "x" * 100
        cluster = await find_or_create_cluster(session, ZkPaths(root), "c", SHARDS_MAX - 1, 1)
        return cluster.shards

    assert in_session(zookeeper.connect_string, found) == SHARDS_MAX - 1


def test_session_refusal_reasons(zookeeper: Ensemble) -> None:
    servers = zookeeper.connect_string

    async def refused(session: KazooSession, *operations: Operation) -> tuple[int, RefusalReason]:
        with pytest.raises(RefusedError) as caught:
            await session.transact(operations)
        return caught.value.position, caught.value.reason

    async def playing(session: KazooSession) -> None:
        root = "/tests-session"
        await session.transact([Create(root, b"0"), Create(f"{root}/a", b"1")])
        assert await refused(session, Create(root)) == (0, RefusalReason.EXISTS)
        assert await refused(session, Check(root, 0), Create(root)) == (1, RefusalReason.EXISTS)
        assert await refused(session, Check(root, 7), Create(root)) == (0, RefusalReason.VERSION)
        assert await refused(session, SetData(f"{root}/b", b"")) == (0, RefusalReason.MISSING)
        assert await refused(session, Delete(f"{root}/b")) == (0, RefusalReason.MISSING)
        assert await refused(session, Delete(root)) == (0, RefusalReason.CHILDREN)
        assert await refused(session, Create(f"{root}/x/y")) == (0, RefusalReason.MISSING)
        assert await refused(session, SetData(root, b"9"), Check(f"{root}/a", 3)) == (
            1,
            RefusalReason.VERSION,
        )
        node = await session.read(root)
        assert node is not None
        assert (node.data, node.version) == (b"0", 0)
        assert await session.children(root) == ["a"]
        assert await session.children(f"{root}/none") == []
        found = await session.read_all([f"{root}/a", f"{root}/none"])
        assert [None if each is None else each.data for each in found] == [b"1", None]

    in_session(servers, playing)


def test_session_watches_fire_on_create_change_delete(zookeeper: Ensemble) -> None:
    async def playing(session: KazooSession) -> None:
        heard: asyncio.Queue[str] = asyncio.Queue()
        path = "/tests-watched"
        for what, change in (
            ("comes", Create(path)),
            ("changes", SetData(path, b"1")),
            ("goes", Delete(path)),
        ):
            await session.read(path, partial(heard.put_nowait, what))
            await session.transact([change])
            assert await asyncio.wait_for(heard.get(), PATIENCE_S) == what
        await session.children("/", lambda: heard.put_nowait("children"))
        await session.transact([Create(path)])
        assert await asyncio.wait_for(heard.get(), PATIENCE_S) == "children"

    in_session(zookeeper.connect_string, playing)


def test_ended_session_sends_no_requests(zookeeper: Ensemble) -> None:
    """kazoo's client would continue in a new session; ours does not."""

    async def playing() -> None:
        session = await KazooSession.begin(zookeeper.connect_string, 10_000, PATIENCE_S)
        over = asyncio.Event()
        session.on_ended = over.set
        other = await KazooSession.begin(zookeeper.connect_string, 10_000, PATIENCE_S)
        await session.transact([Create("/tests-ephemeral", is_ephemeral=True)])
        node = await other.read("/tests-ephemeral")
        assert node is not None
        assert node.session == session.session_id
        await asyncio.to_thread(expire, zookeeper.connect_string, session)
        await asyncio.wait_for(over.wait(), PATIENCE_S)
        for _ in range(2):
            with pytest.raises(SessionEndedError):
                await session.transact([Create("/tests-late")])
            await asyncio.sleep(0)
        assert await other.read("/tests-late") is None
        assert await other.read("/tests-ephemeral") is None
        await session.end()
        await other.end()

    asyncio.run(playing())


def expire(servers: str, session: KazooSession) -> None:
    """Close a session from another connection, like its expiry."""
    from kazoo.client import KazooClient

    twin = KazooClient(servers, client_id=session._client.client_id)
    twin.start(PATIENCE_S)
    twin.stop()
    twin.close()


def test_group_larger_than_packet_is_stored(zookeeper: Ensemble) -> None:
    """5,000 members take 1.3 MB; ZooKeeper's packets have 1 MB."""

    async def playing(session: KazooSession) -> None:
        at = ZkPaths("/tests-large")
        await find_or_create_cluster(session, at, "large", 2)
        roster = ClusterRegistry(session, at, 1, 2)
        me = BrokerDoc(host="h", port=1, incarnation="i", directory="d")
        await roster.register(me)
        await roster.refresh(lambda: None)
        (tenure,) = await roster.acquire([1])
        log = SharedLog(session, at, tenure.shard, tenure.version, tenure.epoch)
        await log.load()
        gatherer = WriteBatcher(session)
        told: list[StoreError | None] = []
        for batch in encode_records([large_group(5000)], 0):
            gatherer.enqueue(log, batch, told.append)
        await gatherer.flush()
        assert told == [None]
        again = SharedLog(session, at, tenure.shard, tenure.version, tenure.epoch)
        for each in (log, again):
            shard = replay(await each.load(), GroupSettings())
            saved = shard.groups["large"].record
            assert saved is not None
            assert len(saved.members) == 5000
            await each.merge(asyncio.to_thread)

    in_session(zookeeper.connect_string, playing)


def test_deposed_owner_is_fenced(zookeeper: Ensemble) -> None:
    """Its session is alive: only the fence stops its writes."""

    async def broker(session: KazooSession, at: ZkPaths, broker_id: int) -> ClusterRegistry:
        await find_or_create_cluster(session, at, "fenced", 2)
        roster = ClusterRegistry(session, at, broker_id, 2)
        incarnation = str(broker_id)
        me = BrokerDoc(host="h", port=1, incarnation=incarnation, directory=incarnation)
        await roster.register(me)
        return roster

    async def take(session: KazooSession, at: ZkPaths, roster: ClusterRegistry) -> SharedLog:
        await roster.refresh(lambda: None)
        (tenure,) = await roster.acquire([1])
        log = SharedLog(session, at, tenure.shard, tenure.version, tenure.epoch)
        await log.load()
        return log

    async def write(session: KazooSession, log: SharedLog, offset: int) -> StoreError | None:
        gatherer, told = WriteBatcher(session), list[StoreError | None]()
        (batch,) = encode_records([committed(offset)], 0)
        gatherer.enqueue(log, batch, told.append)
        await gatherer.flush()
        (outcome,) = told
        return outcome

    async def playing(first: KazooSession) -> None:
        at = ZkPaths("/tests-fenced")
        second = await KazooSession.begin(zookeeper.connect_string, 10_000, PATIENCE_S)
        rosters = await broker(first, at, 1), await broker(second, at, 2)
        deposed = await take(first, at, rosters[0])
        assert await write(first, deposed, 1) is None
        log = await take(second, at, rosters[1])
        assert isinstance(await write(first, deposed, 2), ShardFencedError)
        assert await write(second, log, 3) is None
        with pytest.raises(RefusedError):
            await deposed.merge(asyncio.to_thread)
        looking = SharedLog(second, at, 1, 0, 0)
        found = replay(await looking.load(), GroupSettings()).offsets["g"]
        assert {each.offset for each in found.values()} == {3}
        assert await first.children("/") is not None, "it is alive"
        await second.end()

    in_session(zookeeper.connect_string, playing)


def test_session_timeout_is_granted_timeout(zookeeper: Ensemble) -> None:
    """These servers grant one minute at most."""

    async def playing() -> Sequence[int]:
        granted = []
        for asked_ms in (5_000, 3_600_000):
            session = await KazooSession.begin(zookeeper.connect_string, asked_ms, PATIENCE_S)
            granted.append(session.timeout_ms)
            await session.end()
        return granted

    assert asyncio.run(playing()) == [5_000, 60_000]
