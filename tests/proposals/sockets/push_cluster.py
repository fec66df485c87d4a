"""Brokers and consumers of the first design as processes, to be killed, stopped and continued."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import IO, NamedTuple

from confluent_kafka import Producer
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from cluster.zookeeper_ensemble import Ensemble
from partage.testing import ThreadedBroker
from polled_conditions import PATIENCE_S, eventually

TOPIC = "clicks"
SESSION_MS = 6_000
ZOOKEEPER_SESSION_MS = 3_000
BROKER_SETTINGS = {
    "--session-timeout-min-ms": "500",
    "--ping-retries-max": "0",
    "--offset-commit-interval-ms": "200",
    "--rebalance-backoff-ms": "100",
    "--zookeeper-session-timeout-ms": str(ZOOKEEPER_SESSION_MS),
    "--topic-refresh-ms": "200",
}
#: A line of a consumer's log: since when it reads which partitions.
_READS = re.compile(r"^(\S+ \S+) INFO reading (.*)$", re.MULTILINE)
#: Times of the log are in milliseconds.
_LOG_PRECISION_S = 0.001


class Tenure(NamedTuple):
    """The time in which a consumer reads a partition, on the wall clock."""

    partition: str
    since_s: float
    until_s: float
    consumer: str


def tenures_of(consumer: str, log: str, killed_s: float = float("inf")) -> list[Tenure]:
    """Return the times in which a consumer has read partitions, by its log."""
    tenures = []
    since_s: dict[str, float] = {}
    for written, names in _READS.findall(log):
        now_s = datetime.strptime(written, "%Y-%m-%d %H:%M:%S,%f").timestamp()
        current = set() if names == "nothing" else set(names.split(", "))
        ended = since_s.keys() - current
        tenures += [Tenure(each, since_s.pop(each), now_s, consumer) for each in ended]
        for partition in current - since_s.keys():
            since_s[partition] = now_s
    tenures += [Tenure(each, begin_s, killed_s, consumer) for each, begin_s in since_s.items()]
    return tenures


def overlaps(tenures: Iterable[Tenure]) -> list[tuple[Tenure, Tenure]]:
    """Return the tenures in which two consumers read a partition at a time.

    A consumer writes a line when it begins or stops to read. It answers StopFetcher, and registers
    again, after that line.
    """
    return [
        (before, after)
        for before, after in pairwise(sorted(tenures))
        if before.partition == after.partition and after.since_s < before.until_s - _LOG_PRECISION_S
    ]


class Command:
    """A running command. Its output is read continuously; its errors go to a file."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self.log = log
        self.killed_s = float("inf")  # wall clock
        with log.open("a") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "partage", "proposal", "broker-side", *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self.lines: list[bytes] = []
        assert self.process.stdout is not None
        self._reading = Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reading.start()

    def _read(self, out: IO[bytes]) -> None:
        for line in out:
            if line.endswith(b"\n"):
                self.lines.append(line)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        code = self.process.wait(PATIENCE_S)
        self._reading.join(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def kill(self) -> None:
        killed_s = time.time()  # the coordinator may notice the death before wait() returns
        self.send(signal.SIGKILL)
        self.wait()
        self.killed_s = killed_s

    def interrupt(self) -> None:
        """Press Ctrl-C, and expect a clean end."""
        self.send(signal.SIGINT)
        assert self.wait() == 0, self.log.read_text()

    def check_running(self) -> None:
        assert self.process.poll() is None, self.log.read_text()


class PushBrokerProcess(Command):
    """A broker of the design."""

    @property
    def address(self) -> str:
        """The address, once it accepts connections."""
        eventually(lambda: self.lines, self.log.read_text, check=self.check_running)
        return self.lines[0].decode().strip()


class PushConsumerProcess(Command):
    """A consumer of the design."""

    @property
    def values(self) -> list[str]:
        """The values of the records that it has printed."""
        return [json.loads(line)["value"] for line in list(self.lines)]

    @property
    def partitions(self) -> set[int]:
        return {json.loads(line)["partition"] for line in list(self.lines)}

    @property
    def is_reading(self) -> bool:
        """True if it reads partitions, by the end of its log."""
        reads = _READS.findall(self.log.read_text())
        return bool(reads) and reads[-1][1] != "nothing"

    @property
    def registrations(self) -> int:
        """The number of its registrations, by its log."""
        return self.log.read_text().count("the coordinator registered the consumer")

    def tenures(self) -> list[Tenure]:
        """Return the times in which it has read partitions."""
        return tenures_of(self.log.stem, self.log.read_text(), self.killed_s)


class PushCluster:
    """Brokers and consumers of one test."""

    def __init__(
        self,
        directory: Path,
        zookeeper: Ensemble,
        records: ThreadedBroker,
        partitions: int,
        settings: Mapping[str, str],
    ) -> None:
        self.topic = f"{TOPIC}-{directory.name}"
        self.path = f"/proposals/{directory.name}"
        self.zookeeper = zookeeper
        self.records = records
        self._directory = directory
        self._partitions = partitions
        self._settings = {**BROKER_SETTINGS, **settings}
        self._commands: list[Command] = []
        self.brokers: list[PushBrokerProcess] = []
        self.consumers: list[PushConsumerProcess] = []
        self._produced = 0
        self.client = KazooClient(
            zookeeper.connect_string, connection_retry={"max_tries": -1, "max_delay": 1.0}
        )
        records.create_topic(self.topic, partitions)
        self._producer = Producer({"bootstrap.servers": records.bootstrap_servers})

    @property
    def state(self) -> str:
        return f"zookeeper://{self.zookeeper.connect_string}{self.path}"

    def broker(self, broker_id: int) -> PushBrokerProcess:
        """Start a broker; return when it accepts connections."""
        settings = [part for option in self._settings.items() for part in option]
        started = PushBrokerProcess(
            self._directory / f"broker{broker_id}.log",
            "broker",
            *("--listen", "127.0.0.1:0", "--id", str(broker_id), "--state", self.state),
            *("--bootstrap-server", self.records.bootstrap_servers, "-v"),
            *settings,
        )
        self._commands.append(started)
        self.brokers.append(started)
        assert started.address
        return started

    def consumer(self, name: str, *more: str, session_ms: int = SESSION_MS) -> PushConsumerProcess:
        """Start a consumer."""
        started = PushConsumerProcess(
            self._directory / f"{name}.log",
            "consumer",
            *("--broker-list", ",".join(each.address for each in self.brokers)),
            *("--group", "g", "--consumer-id", name, "--json", "-v"),
            *("--session-timeout-ms", str(session_ms)),
            *("--bootstrap-server", self.records.bootstrap_servers),
            *(more or ("--topic", self.topic)),
        )
        self._commands.append(started)
        self.consumers.append(started)
        return started

    def switch(self, *, is_enabled: bool) -> None:
        """Switch the rebalancing of the group on or off, as an operator."""
        command = Command(
            self._directory / "switch.log",
            *("thaw" if is_enabled else "freeze", "g", "--state", self.state),
        )
        self._commands.append(command)
        assert command.wait() == 0, command.log.read_text()

    def produce(self, count: int, topic: str | None = None) -> None:
        """Produce records with increasing numbers, in turn to the partitions."""
        for _ in range(count):
            self._producer.produce(
                topic or self.topic,
                value=str(self._produced),
                partition=self._produced % self._partitions,
            )
            self._produced += 1
        assert self._producer.flush(PATIENCE_S) == 0

    # Conditions

    def owners(self) -> dict[int, str]:
        """Return the consumer of each partition, as ZooKeeper has it."""
        parent = f"/consumers/g/owners/{self.topic}"
        found = {}
        with suppress(NoNodeError):  # the nodes may be deleted while they are read
            for partition in self.client.get_children(parent):
                data, _ = self.client.get(f"{parent}/{partition}")
                found[int(partition)] = json.loads(data)["thread"].rpartition("-")[0]
        return found

    def coordinator(self) -> int | None:
        """Return the id of the coordinator's broker, or None without one."""
        try:
            return int(self.client.get("/consumers/coordinator")[0])
        except NoNodeError:
            return None

    def wait_owned_by(self, *names: str) -> None:
        """Return when all partitions have owners, and these consumers are all of them."""
        eventually(
            lambda: (
                len(found := self.owners()) == self._partitions and {*found.values()} == {*names}
            ),
            self.describe,
        )

    def wait_committed(self, total: int) -> None:
        """Return when the committed offsets count this many records."""

        def committed() -> int:
            parent = f"/consumers/g/offsets/{self.topic}"
            if self.client.exists(parent) is None:
                return 0
            names = self.client.get_children(parent)
            return sum(int(self.client.get(f"{parent}/{name}")[0]) for name in names)

        eventually(lambda: committed() == total, self.describe)

    def wait_delivered(self) -> Counter[str]:
        """Return how often each record was delivered, when all were delivered at least once."""

        def delivered() -> Counter[str]:
            return Counter(value for each in self.consumers for value in each.values)

        eventually(lambda: len(delivered()) == self._produced, self.describe)
        return delivered()

    def wait_zookeeper(self) -> None:
        """Return when this process can ask ZooKeeper again after an outage."""
        eventually(lambda: self.client.connected, self._logs)

    def check_one_reader(self) -> None:
        """Check that no partition was read by two consumers at a time."""
        tenures = [tenure for each in self.consumers for tenure in each.tenures()]
        assert len({each.partition for each in tenures}) == self._partitions, self._logs()
        assert not overlaps(tenures), self._logs()

    def describe(self) -> str:
        return f"owners {self.owners()}, coordinator {self.coordinator()}\n{self._logs()}"

    def _logs(self) -> str:
        return "\n".join(
            f"{each.log.name}:\n{each.log.read_text()[-3000:]}" for each in self._commands
        )

    def close(self) -> None:
        for each in self._commands:
            if each.process.poll() is None:
                each.kill()
        self.client.stop()
        self.client.close()


@contextmanager
def push_cluster(
    directory: Path,
    zookeeper: Ensemble,
    records: ThreadedBroker,
    *broker_ids: int,
    settings: Mapping[str, str] | None = None,
) -> Iterator[PushCluster]:
    """Run brokers with these ids; the first one is the coordinator. The topic has 4 partitions.

    Args:
        directory: For the logs; its name is part of paths and of the topic.
        zookeeper: The ZooKeeper.
        records: The broker of the records.
        broker_ids: The ids of the brokers.
        settings: Options of the brokers besides `BROKER_SETTINGS`.
    """
    cluster = PushCluster(directory, zookeeper, records, partitions=4, settings=settings or {})
    try:
        cluster.client.start()
        cluster.client.ensure_path(cluster.path)
        cluster.client.chroot = cluster.path
        for broker_id in broker_ids:
            cluster.broker(broker_id)
            eventually(lambda: cluster.coordinator() == broker_ids[0], cluster.describe)
        yield cluster
    finally:
        cluster.close()
