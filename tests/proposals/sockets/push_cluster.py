"""Brokers and consumers of the first design as processes, to be killed, stopped and continued."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import IO

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


class Command:
    """A running command. Its output is read continuously; its errors go to a file."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self.log = log
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
        self.send(signal.SIGKILL)
        self.wait()

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


class PushCluster:
    """Brokers and consumers of one test."""

    def __init__(
        self, directory: Path, zookeeper: Ensemble, records: ThreadedBroker, partitions: int
    ) -> None:
        self.topic = f"{TOPIC}-{directory.name}"
        self.path = f"/proposals/{directory.name}"
        self.zookeeper = zookeeper
        self.records = records
        self._directory = directory
        self._partitions = partitions
        self._commands: list[Command] = []
        self.brokers: list[PushBrokerProcess] = []
        self.consumers: list[PushConsumerProcess] = []
        self._produced = 0
        self.client = KazooClient(zookeeper.connect_string)
        records.create_topic(self.topic, partitions)
        self._producer = Producer({"bootstrap.servers": records.bootstrap_servers})

    @property
    def state(self) -> str:
        return f"zookeeper://{self.zookeeper.connect_string}{self.path}"

    def broker(self, broker_id: int) -> PushBrokerProcess:
        """Start a broker; return when it accepts connections."""
        settings = [part for option in BROKER_SETTINGS.items() for part in option]
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

    def describe(self) -> str:
        logs = [f"{each.log.name}:\n{each.log.read_text()[-3000:]}" for each in self._commands]
        return f"owners {self.owners()}, coordinator {self.coordinator()}\n" + "\n".join(logs)

    def close(self) -> None:
        for each in self._commands:
            if each.process.poll() is None:
                each.kill()
        self.client.stop()
        self.client.close()


@contextmanager
def push_cluster(
    directory: Path, zookeeper: Ensemble, records: ThreadedBroker, *broker_ids: int
) -> Iterator[PushCluster]:
    """Run brokers with these ids; the first one is the coordinator. The topic has 4 partitions."""
    cluster = PushCluster(directory, zookeeper, records, partitions=4)
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
