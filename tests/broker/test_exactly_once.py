"""A consume-transform-produce loop through kills of broker and worker: each result exactly once.

The workers are the examples of the documentation. A seed decides when who is killed.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from client.confluent_admin import create_topic
from partage.testing import BrokerProcess, ThreadedBroker
from polled_conditions import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SOAK = [pytest.mark.soak, pytest.mark.timeout(3600)]
EXAMPLES = Path(__file__).parents[2] / "examples"
PARTITIONS = 4
CONFLUENT = "exactly_once.py"
AIOKAFKA = "exactly_once_aiokafka.py"
QUIET = {"log_level": 0, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100}


class Worker:
    """An example as a process; ``log`` is its output."""

    def __init__(
        self, servers: str, log: Path, name: str = "worker-1", example: str = CONFLUENT
    ) -> None:
        # aiokafka's worker is assigned all partitions instead of a name in the group.
        last = [name] if example == CONFLUENT else [str(each) for each in range(PARTITIONS)]
        script = str(EXAMPLES / example)
        self._command = [sys.executable, script, servers, "source", "target", "group", *last]
        self._log = log
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as output:
            self.process = subprocess.Popen(
                self._command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class TargetReader:
    """Reads the committed results, and counts them by value."""

    def __init__(self, servers: str) -> None:
        self.counts: Counter[bytes] = Counter()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                **QUIET,
            }
        )
        self._consumer.assign([TopicPartition("target", n, 0) for n in range(PARTITIONS)])

    def has(self, count: int) -> bool:
        """Read what is there now; return True if that makes ``count`` results."""
        for message in self._consumer.consume(10_000, 0.2):
            if message.error() is None:
                self.counts[message.value()] += 1
        return self.counts.total() >= count

    def close(self) -> None:
        self._consumer.close()


def fill(servers: str, count: int) -> set[bytes]:
    """Write numbered records; return their expected results."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, **QUIET})
    for number in range(count):
        while True:
            try:
                producer.produce("source", b"order %d" % number, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    return {b"ORDER %d" % number for number in range(count)}


@pytest.mark.parametrize(
    ("example", "seed", "kills", "count"),
    [
        pytest.param(CONFLUENT, 848, 20, 100_000, id="20 kills"),
        pytest.param(CONFLUENT, 28909, 150, 750_000, id="150 kills", marks=SOAK),
        pytest.param(AIOKAFKA, 181, 6, 12_000, id="aiokafka, 6 kills"),
        pytest.param(AIOKAFKA, 28911, 100, 300_000, id="aiokafka, 100 kills", marks=SOAK),
    ],
)
def test_each_result_is_written_once_through_kills(
    tmp_path: Path, example: str, seed: int, kills: int, count: int
) -> None:
    """One worker, and kills of the broker or of the worker.

    The worker of confluent-kafka is the only static member of its group.
    """
    rng = random.Random(seed)
    broker = BrokerProcess(tmp_path / "data", overrides={"group.min.session.timeout.ms": "100"})
    with broker:
        servers = broker.bootstrap_servers
        for topic in ("source", "target"):
            create_topic(servers, topic, PARTITIONS)
        expected = fill(servers, count)
        reader = TargetReader(servers)
        worker = Worker(servers, tmp_path / "worker.log", example=example)
        try:
            for number in range(1, kills + 1):
                wanted = number * count // (kills + 1) - rng.randrange(count // kills * 2 // 5)
                eventually(partial(reader.has, wanted), partial(worker_log, tmp_path))
                assert worker.process.poll() is None, worker_log(tmp_path)
                if rng.random() < 0.5:
                    broker.kill()
                    broker.start()
                else:
                    worker.kill()
                    worker.start()
            eventually(partial(reader.has, count), partial(worker_log, tmp_path))
        finally:
            worker.kill()
            reader.close()
        repeated = [value for value, times in reader.counts.items() if times > 1]
        assert not repeated, f"seed {seed}: {len(repeated)} results twice, first {repeated[:3]}"
        assert set(reader.counts) == expected


@pytest.mark.parametrize(
    ("seed", "kills", "count"),
    [
        pytest.param(447, 12, 40_000, id="12 kills"),
        pytest.param(28910, 100, 300_000, id="100 kills", marks=SOAK),
    ],
)
def test_two_workers_write_each_result_once_through_kills(
    tmp_path: Path, seed: int, kills: int, count: int
) -> None:
    """Two workers in a group, and kills of the broker or of one worker.

    The second worker starts later, so that partitions move between open transactions.
    """
    rng = random.Random(seed)
    broker = BrokerProcess(tmp_path / "data", overrides={"group.min.session.timeout.ms": "100"})
    with broker:
        servers = broker.bootstrap_servers
        for topic in ("source", "target"):
            create_topic(servers, topic, PARTITIONS)
        expected = fill(servers, count)
        reader = TargetReader(servers)
        workers = [Worker(servers, tmp_path / "worker.log")]
        try:
            for number in range(1, kills + 1):
                wanted = number * count // (kills + 1) - rng.randrange(1_000)
                eventually(partial(reader.has, wanted), partial(worker_log, tmp_path))
                ended = [each for each in workers if each.process.poll() is not None]
                assert not ended, worker_log(tmp_path)
                if len(workers) == 1:
                    workers.append(Worker(servers, tmp_path / "worker.log", "worker-2"))
                elif rng.random() < 0.4:
                    broker.kill()
                    broker.start()
                else:
                    worker = rng.choice(workers)
                    worker.kill()
                    worker.start()
            eventually(partial(reader.has, count), partial(worker_log, tmp_path))
        finally:
            for each in workers:
                each.kill()
            reader.close()
        repeated = [value for value, times in reader.counts.items() if times > 1]
        assert not repeated, f"seed {seed}: {len(repeated)} results twice, first {repeated[:3]}"
        assert set(reader.counts) == expected


@pytest.fixture
def aiokafka_broker(partage_broker: ThreadedBroker) -> ThreadedBroker:
    for topic in ("source", "target"):
        partage_broker.create_topic(topic, PARTITIONS)
    return partage_broker


def test_aiokafka_worker_continues_after_rejected_record(
    tmp_path: Path, aiokafka_broker: ThreadedBroker
) -> None:
    """aiokafka would commit the position without the result."""
    aiokafka_broker.faults.transactions.fail_verification("target")
    servers = aiokafka_broker.bootstrap_servers
    expected = fill(servers, 2 * PARTITIONS)
    reader = TargetReader(servers)
    worker = Worker(servers, tmp_path / "worker.log", example=AIOKAFKA)
    try:
        eventually(partial(reader.has, len(expected)), partial(worker_log, tmp_path))
    finally:
        worker.kill()
        reader.close()
    assert reader.counts == Counter(expected)
    assert worker_log(tmp_path).count("InvalidTxnState()") == 1


def test_second_aiokafka_worker_of_a_partition_fences_the_first(
    tmp_path: Path, aiokafka_broker: ThreadedBroker
) -> None:
    servers = aiokafka_broker.bootstrap_servers
    reader = TargetReader(servers)
    first = Worker(servers, tmp_path / "worker.log", example=AIOKAFKA)
    workers = [first]
    try:
        expected = fill(servers, PARTITIONS)
        eventually(partial(reader.has, PARTITIONS), partial(worker_log, tmp_path))
        workers.append(Worker(servers, tmp_path / "second.log", example=AIOKAFKA))
        while first.process.poll() is None:
            reader.counts.clear()
            assert fill(servers, PARTITIONS) == expected
            eventually(partial(reader.has, PARTITIONS), partial(worker_log, tmp_path))
            assert reader.counts == Counter(expected)
    finally:
        for each in workers:
            each.kill()
        reader.close()
    assert "ProducerFenced" in worker_log(tmp_path)


def worker_log(directory: Path) -> str:
    return (directory / "worker.log").read_text()[-2_000:]
