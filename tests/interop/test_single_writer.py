"""A single writer on Apache Kafka and on Partage: the broker rejects a suspended process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from client.confluent_admin import create_topic
from interop.conftest import BROKERS, grouped_brokers
from partage import Consumer, TopicPartition
from partage.recipes import SingleWriter
from polled_conditions import PATIENCE_S, eventually, eventually_async

PROCESS = Path(__file__).parent / "single_writer_process.py"


@pytest.fixture(scope="module", params=grouped_brokers("single-writer"))
def servers(peers: None, request: pytest.FixtureRequest) -> Iterator[str]:
    settings = {"auto.create.topics.enable": "false", "group.min.session.timeout.ms": "100"}
    with BROKERS[request.param](overrides=settings) as broker:
        yield broker.bootstrap


class WriterProcess:
    """A process that writes while it is elected; ``log`` is its output."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(PROCESS), *arguments], stdout=output, stderr=subprocess.STDOUT
            )

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def committed(self) -> list[str]:
        """Return the records whose commit was acknowledged, in order."""
        return [line for line in self.lines() if line.startswith(("one ", "two "))]

    def signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


async def committed_records(servers: str, topic: str) -> list[str]:
    partition = TopicPartition(topic, 0)
    async with Consumer(
        servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        records: list[str] = []
        while await consumer.position(partition) < end:
            batch = await consumer.poll(1_000)
            records += [record.value.decode() for record in batch if record.value is not None]
    return records


@pytest.mark.interop
@pytest.mark.parametrize("client", ["confluent", "aiokafka"])
def test_suspended_writer_is_rejected_after_its_successor_started(
    servers: str, client: str, tmp_path: Path
) -> None:
    topic = f"ledger-{client}"
    create_topic(servers, topic, 1)
    writers = {}
    orders = {name: tmp_path / f"orders-{name}" for name in ("one", "two")}
    for name, directory in orders.items():
        directory.mkdir()
        writers[name] = WriterProcess(tmp_path / name, servers, topic, name, client, str(directory))
        if name == "one":
            eventually(lambda: writers["one"].committed())
    one, two = writers.values()
    try:
        (orders["one"] / "pause").touch()
        eventually((orders["one"] / "paused").exists)
        one.signal(signal.SIGSTOP)
        eventually(lambda: len(two.committed()) >= 20)
        (orders["one"] / "resume").touch()
        one.signal(signal.SIGCONT)
        (end,) = eventually(lambda: [line for line in one.lines() if line.startswith("ended")])
        if client == "confluent":  # it asked for the commit before it looked at its term
            assert "fenced" in end.lower()
        before = len(two.committed())
        eventually(lambda: len(two.committed()) >= before + 20)
    finally:
        one.kill()
        two.kill()
    acknowledged = {*one.committed(), *two.committed()}

    def records_if_complete() -> list[str]:
        # The coordinator may complete a transaction after its response to the producer.
        found = asyncio.run(committed_records(servers, topic))
        return found if acknowledged <= set(found) else []

    records = eventually(records_if_complete, lambda: "an acknowledged record is missing")
    tokens = [int(record.split()[1]) for record in records]
    assert tokens == sorted(tokens), "a process wrote after its successor had started"
    assert len(set(records)) == len(records)


@pytest.mark.interop
def test_writer_fenced_during_its_term_becomes_active_again(servers: str) -> None:
    """Another producer with the same transactional id ends the term, but not the candidacy.

    The first writer is fenced between two transactions. A commit that arrives at Apache Kafka 4.4
    while it fences the producer once got UNKNOWN_SERVER_ERROR, for which a candidate resigns.
    """
    tokens: list[int] = []
    has_committed, is_fenced = asyncio.Event(), asyncio.Event()

    def create_producer(transactional_id: str) -> Producer:
        return Producer({"bootstrap.servers": servers, "transactional.id": transactional_id})

    async def write(term: Any, producer: Producer) -> None:
        tokens.append(term.token)
        while True:
            producer.begin_transaction()
            producer.produce("fenced", b"x")
            await asyncio.to_thread(producer.commit_transaction, PATIENCE_S)
            has_committed.set()
            await is_fenced.wait()

    async def main() -> None:
        async with SingleWriter(servers, "fenced", create_producer=create_producer, write=write):
            await eventually_async(has_committed.is_set)
            other = create_producer("fenced")
            await asyncio.to_thread(other.init_transactions, PATIENCE_S)
            is_fenced.set()
            await eventually_async(lambda: len(tokens) >= 2)

    create_topic(servers, "fenced", 1)
    asyncio.run(main())
    assert tokens[1] > tokens[0]


@pytest.mark.interop
def test_open_transaction_of_resigned_writer_is_aborted(servers: str) -> None:
    topic = "resigned"
    create_topic(servers, topic, 1)

    def create_producer(transactional_id: str) -> Producer:
        return Producer({"bootstrap.servers": servers, "transactional.id": transactional_id})

    async def leave_open(term: Any, producer: Producer) -> None:
        producer.begin_transaction()
        producer.produce(topic, b"open")
        await asyncio.to_thread(producer.flush, PATIENCE_S)

    async def commit_one(term: Any, producer: Producer) -> None:
        producer.begin_transaction()
        producer.produce(topic, b"committed")
        await asyncio.to_thread(producer.commit_transaction, PATIENCE_S)

    async def run(write: Callable[..., Any]) -> None:
        async with SingleWriter(
            servers, topic, create_producer=create_producer, write=write
        ) as writer:
            await writer.wait_until_elected()
            await eventually_async(lambda: not writer.is_leader)
            assert writer.failure is None

    async def main() -> None:
        await run(leave_open)
        await run(commit_one)

    asyncio.run(main())
    # The coordinator may complete the transaction after its response to the producer.
    records = eventually(lambda: asyncio.run(committed_records(servers, topic)))
    assert records == ["committed"]
