"""Partitions with open transactions, as the page finds them in a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from broker.raw_client import RawClient
from broker.requests import batch, produce
from partage.console.common.cluster_client import ClusterClient
from partage.console.web.held_partitions import HeldPartitionsReader
from partage.console.web.snapshot_source import ClusterSnapshotSource
from partage.model.errors import ErrorCode
from partage.testing import ThreadedBroker

from .page_server import PageServer

TIMEOUT_S = 30
HANGING_ID = 7_000


class Clock:
    """Wall clock of a reader, which the test advances."""

    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        return self.ms


@pytest.fixture(scope="module")
def broker() -> Iterator[ThreadedBroker]:
    with ThreadedBroker({"transaction.partition.verification.enable": False}) as running:
        yield running


@pytest.fixture
def transaction(broker: ThreadedBroker, request: pytest.FixtureRequest) -> Iterator[str]:
    """Topic with a plain record and an open transaction in partition 0; its id is the same."""
    name = request.node.name.replace("[", "-").replace("]", "")
    broker.create_topic(name, 2)
    with RawClient(broker.bootstrap_servers) as raw:
        produce(raw, name, batch(b"plain"))
    servers = broker.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(name, "x", partition=0)
    producer.flush(TIMEOUT_S)
    yield name
    producer.abort_transaction(TIMEOUT_S)


def reader(broker: ThreadedBroker, clock: Clock) -> HeldPartitionsReader:
    return HeldPartitionsReader(
        ClusterClient(broker.bootstrap_servers, {}, 5_000, verbose=False), clock
    )


def test_open_transaction_is_held_after_ten_seconds(
    broker: ThreadedBroker, transaction: str
) -> None:
    clock = Clock()
    held = reader(broker, clock)
    assert held.read() == []
    clock.ms = 9_999
    assert held.read() == []  # It asks every 10 s.
    clock.ms = 10_000
    (found,) = held.read()
    assert (found.topic, found.partition, found.start_offset) == (transaction, 0, 1)
    assert (found.transactional_id, found.is_hanging) == (transaction, False)
    assert found.since_ms > 0


def test_page_shows_hanging_transaction(broker: ThreadedBroker, transaction: str) -> None:
    """The transaction of partition 1 hangs; a page that starts now has seen it for 10 s."""
    hang = batch(
        b"x", producer_id=HANGING_ID, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    with RawClient(broker.bootstrap_servers) as raw:
        result = produce(raw, transaction, hang, version=9, transactional_id="lost", partition=1)
    assert result.error_code == ErrorCode.NONE
    clock = Clock()
    held = reader(broker, clock)
    held.read()
    clock.ms = 10_000
    source = ClusterSnapshotSource(
        ClusterClient(broker.bootstrap_servers, {}, 5_000, verbose=False), held
    )
    with PageServer(broker.bootstrap_servers, source=source) as page:
        shown = page.until("/", f"{transaction}-1")
        assert shown.row(f"{transaction}-0")[3] == transaction
        ends = f"never: partage transactions abort {transaction}:1 --start-offset 0"
        assert shown.row(f"{transaction}-1")[3:] == ["–", str(HANGING_ID), ends]
        listed = page.get("/api/held-partitions").json["partitions"]
    assert [(each["partition"], each["is_hanging"]) for each in listed] == [(1, True), (0, False)]


def test_refused_request_is_a_remark() -> None:
    cluster = ClusterClient("127.0.0.1:1", {}, 200, verbose=False)
    held = HeldPartitionsReader(cluster, Clock())
    assert held.read() == []
    assert held.remark.startswith("open transactions are unknown: ")
