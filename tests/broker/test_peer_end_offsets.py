"""End offsets of partitions of other brokers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from partage.broker.cluster import peer_end_offsets
from partage.broker.cluster.broker_node import BrokerNode
from partage.broker.cluster.cluster_view import SingleBrokerView
from partage.broker.cluster.peer_end_offsets import PeerEndOffsets
from partage.log.catalogue.topic_catalogue import TopicDefinition
from partage.model.topic_partition import TopicPartition
from partage.testing import ThreadedBroker
from store.zk_fixture import made, run

from .raw_client import RawClient
from .requests import batch, create, produce
from .test_topic_reconciler import BrokerFixture

PATIENCE_S = 30


class FakeClusterView(SingleBrokerView):
    """Broker 1, and other brokers at these addresses."""

    def __init__(self, addresses: Mapping[int, str]) -> None:
        super().__init__(BrokerNode(node_id=1, host="h", port=1, cluster_id="c"))
        self._addresses = addresses

    def brokers(self) -> Sequence[BrokerNode]:
        nodes = [self.node]
        for node_id, address in self._addresses.items():
            host, _, port = address.rpartition(":")
            nodes.append(BrokerNode(node_id=node_id, host=host, port=int(port), cluster_id="c"))
        return nodes

    def broker_of(self, topic: TopicDefinition, index: int) -> int:
        return topic.brokers[index]


@pytest.fixture
def silent_peer() -> Iterator[str]:
    """Yield the address of a peer that accepts connections but never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def scripted_peer() -> Iterator[Callable[[bytes], str]]:
    """Yield a function that starts a peer which sends the same bytes on each connection."""
    servers: list[socket.socket] = []

    def start(answer: bytes) -> str:
        listening = socket.create_server(("127.0.0.1", 0))
        servers.append(listening)

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        return f"127.0.0.1:{listening.getsockname()[1]}"

    yield start
    for server in servers:
        server.close()


async def follower_of(*topics: tuple[str, tuple[int, ...]]) -> BrokerFixture:
    """Return broker 1 with these topics, and the brokers of their partitions."""
    one = await BrokerFixture().start()
    for number, (name, brokers) in enumerate(topics):
        await one.topics.put(name, made(f"{number:032x}", *brokers), name)
    await one.reconcile()
    return one


def fetch_ends(
    street: Mapping[int, str], brokers: tuple[int, ...], patience_s: float = PATIENCE_S
) -> dict[TopicPartition, int]:
    """Return the end offsets of all partitions of ``t`` with this placement."""

    async def scenario() -> dict[TopicPartition, int]:
        one = await follower_of(("t", brokers))
        asking = PeerEndOffsets(one.hosted, FakeClusterView(street), patience_s)
        return dict(await asking.fetch([("t", n) for n in range(len(brokers))]))

    return run(scenario())


def test_fetch_returns_end_offsets_of_peers(partage_broker: ThreadedBroker, raw: RawClient) -> None:
    create(raw, "t", partitions=3)
    assert not produce(raw, "t", batch(*[b"x"] * 10)).error_code
    found = fetch_ends({2: partage_broker.bootstrap_servers}, (2, 2, 2))
    assert found == {("t", 0): 10, ("t", 1): 0, ("t", 2): 0}


def test_fetch_many_partitions_uses_several_requests(
    partage_broker: ThreadedBroker, raw: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_end_offsets, "_PARTITIONS_PER_REQUEST", 7)
    create(raw, "t", partitions=30)
    found = fetch_ends({2: partage_broker.bootstrap_servers}, (2,) * 30)
    assert found == {("t", n): 0 for n in range(30)}


def test_fetch_unresponsive_peer_is_left_out(
    partage_broker: ThreadedBroker, raw: RawClient, silent_peer: str, closed_port: str
) -> None:
    create(raw, "t", partitions=5)
    street = {
        2: partage_broker.bootstrap_servers,
        3: silent_peer,
        4: closed_port,
        6: f"{'x' * 70}.test:1",
    }
    assert fetch_ends(street, (2, 3, 4, 5, 1, 6), 1.0) == {("t", 0): 0}


def test_fetch_error_response_is_left_out(partage_broker: ThreadedBroker, raw: RawClient) -> None:
    create(raw, "t", partitions=1)
    assert fetch_ends({2: partage_broker.bootstrap_servers}, (2, 2)) == {("t", 0): 0}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\x00\x00",
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff" + b"\x00" * 100,
        b"\x00\x00\x00\x08" + b"\x00" * 8,
        b"\x00\x00\x00\x08" + b"\x07" * 8,
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_fetch_malformed_response_is_ignored(
    scripted_peer: Callable[[bytes], str], answer: bytes
) -> None:
    assert fetch_ends({2: scripted_peer(answer)}, (2,)) == {}
