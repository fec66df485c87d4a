"""Transactions per second, commit latency, and the cost of ``read_committed``.

A producer commits transactions of 100 records of 1 KB, one after the other, over 1 and over 10
partitions. The load generator has a separate core. It is confluent-kafka, which uses the APIs from
before KIP-890, or franz-go, which uses ``transaction.version`` 2. The latency is that of the commit
call. Without sync, kfake keeps everything in memory.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.brokers import KAFKA, go_peer, ours, pinned, starts
from bench.figures import Figure, figures_of_rounds
from bench.load import percentile
from bench.machine import LOAD_CORE
from bench.worker_process import WorkerProcess

TITLE = "Transactions"

_RECORDS = 100
_RECORD_BYTES = 1_000
_PARTITIONS = (1, 10)
_TIMEOUT_S = 120.0
_RATIOS_WANTED = {KAFKA: 1.0}


class TransactionRound(NamedTuple):
    """One round: transactions per second, and the commit latency."""

    per_s: float
    p50_ms: float
    p99_ms: float


def measure(*, is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    """Measure producers with and without sync, then readers."""
    rounds, seconds = (1, 1.0) if is_quick else (5, 3.0)
    for sync in ("disk", "os"):
        yield from _compared(sync, rounds, seconds, is_quick, with_kafka)
    yield from _read_compared(200 if is_quick else 2_000, rounds)


def confluent_load(
    servers: str, topic: str, partitions: int, name: str, seconds: float
) -> TransactionRound:
    """Commit transactions with confluent-kafka."""
    producer = _producer(servers, name)
    value, latencies_s, begun = b"x" * _RECORD_BYTES, [], time.perf_counter()
    while time.perf_counter() - begun < seconds:
        producer.begin_transaction()
        for number in range(_RECORDS):
            producer.produce(topic, value, partition=number % partitions)
        assert producer.flush(_TIMEOUT_S) == 0
        ended = time.perf_counter()
        producer.commit_transaction(_TIMEOUT_S)
        latencies_s.append(time.perf_counter() - ended)
    return _round(latencies_s, time.perf_counter() - begun)


def franz_load(
    servers: str, topic: str, partitions: int, name: str, seconds: float
) -> TransactionRound:
    """Commit transactions with franz-go."""
    command = [go_peer(), "load", "--bootstrap", servers, "--topic", topic, "--id", name]
    command += ["--partitions", str(partitions), "--count", str(_RECORDS)]
    command += ["--size", str(_RECORD_BYTES), "--for", f"{seconds}s"]
    with pinned({LOAD_CORE}):
        said = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if said.returncode != 0:
        raise RuntimeError(f"the load of franz-go failed: {said.stderr.strip()}")
    report = json.loads(said.stdout)
    return _round(report["commits_s"], report["elapsed_s"])


_CLIENTS: dict[str, Callable[[str, str, int, str, float], TransactionRound]] = {
    "confluent-kafka": confluent_load,
    "franz-go": franz_load,
}


def _round(latencies_s: list[float], elapsed_s: float) -> TransactionRound:
    return TransactionRound(
        len(latencies_s) / elapsed_s,
        percentile(latencies_s, 0.5) * 1e3,
        percentile(latencies_s, 0.99) * 1e3,
    )


def _producer(servers: str, name: str) -> Producer:
    settings = {"bootstrap.servers": servers, "transactional.id": name, "linger.ms": 0}
    producer = Producer({**settings, "metadata.recovery.strategy": "none"})
    producer.init_transactions(_TIMEOUT_S)
    return producer


def _create(servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(_TIMEOUT_S)


def _compared(
    sync: str, rounds: int, seconds: float, is_quick: bool, with_kafka: bool
) -> Iterator[Figure]:
    warm_up_s = {KAFKA: 2.0 if is_quick else 15.0}
    seen: dict[tuple[str, str, int], list[TransactionRound]] = {}
    with ExitStack() as stack:
        worker = stack.enter_context(WorkerProcess(LOAD_CORE))
        started = starts(with_kafka, sync=sync, with_kfake=True)
        brokers = [stack.enter_context(broker) for broker in started]
        for turn in range(rounds):
            for client, load in _CLIENTS.items():
                for partitions in _PARTITIONS:
                    for broker in brokers:
                        topic = f"{client}-{partitions}"
                        name = f"{topic}-{turn}"
                        if not turn:
                            _create(broker.bootstrap, topic, partitions)
                            first_s = warm_up_s.get(broker.name, 0.5)
                            arguments = (broker.bootstrap, topic, partitions, f"{name}-first")
                            worker.submit(load, *arguments, first_s).result()
                        arguments = (broker.bootstrap, topic, partitions, name)
                        result = worker.submit(load, *arguments, seconds).result()
                        seen.setdefault((client, broker.name, partitions), []).append(result)
    for client in _CLIENTS:
        for partitions in _PARTITIONS:
            of_brokers = {each.name: seen[client, each.name, partitions] for each in brokers}
            yield from _figures(client, partitions, sync, of_brokers)


def _figures(
    client: str, partitions: int, sync: str, seen: Mapping[str, Sequence[TransactionRound]]
) -> Iterator[Figure]:
    places = "1 partition" if partitions == 1 else f"{partitions} partitions"
    how = "synced" if sync == "disk" else "not synced"

    def of(field: str) -> dict[str, list[float]]:
        return {name: [getattr(one, field) for one in rounds] for name, rounds in seen.items()}

    yield from figures_of_rounds(
        f"transactions, {client}, {places}, {how}",
        "/s",
        of("per_s"),
        ratios_wanted=_RATIOS_WANTED,
    )
    for field, what in (("p50_ms", "p50"), ("p99_ms", "p99")):
        yield from figures_of_rounds(
            f"the same: latency of a commit, {what}",
            "ms",
            of(field),
            less_is_better=True,
            ratios_wanted=_RATIOS_WANTED,
        )


# Readers.


def fill(servers: str, topic: str, transactions: int) -> None:
    """Write committed transactions."""
    producer = _producer(servers, f"fill-{topic}")
    value = b"x" * _RECORD_BYTES
    for _ in range(transactions):
        producer.begin_transaction()
        for _ in range(_RECORDS):
            producer.produce(topic, value, partition=0)
        producer.commit_transaction(_TIMEOUT_S)


def read_time(servers: str, topic: str, count: int, isolation: str) -> float:
    """Return the time in which confluent-kafka reads all records."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": isolation,
        }
    )
    begun = time.perf_counter()
    consumer.assign([TopicPartition(topic, 0, 0)])
    while count > 0:
        count -= sum(each.error() is None for each in consumer.consume(10_000, 1))
    elapsed_s = time.perf_counter() - begun
    consumer.close()
    return elapsed_s


def _read_compared(transactions: int, rounds: int) -> Iterator[Figure]:
    times_s: dict[str, list[float]] = {"read_committed": [], "read_uncommitted": []}
    count = transactions * _RECORDS
    with ExitStack() as stack:
        worker = stack.enter_context(WorkerProcess(LOAD_CORE))
        broker = stack.enter_context(ours(sync="os"))
        _create(broker.bootstrap, "read", 1)
        worker.submit(fill, broker.bootstrap, "read", transactions).result()
        for _ in range(rounds + 1):
            for isolation, found in times_s.items():
                arguments = (broker.bootstrap, "read", count, isolation)
                found.append(worker.submit(read_time, *arguments).result())
    yield from figures_of_rounds(
        "reading transactions of 100 records with read_committed",
        "thousand records/s",
        {name: [count / took_s / 1e3 for took_s in found[1:]] for name, found in times_s.items()},
        ratios_wanted={"read_uncommitted": 0.9},
    )
