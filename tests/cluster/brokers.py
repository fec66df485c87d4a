"""Brokers of a cluster as child processes, to be killed, stopped and restarted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from broker.raw_client import RawClient
from free_ports import free_ports
from partage.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from partage.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from polled_conditions import PATIENCE_S, eventually

#: Longer than a busy machine stalls a broker.
SESSION_MS = 4_000
OVERRIDES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "3",
    "zookeeper.session.timeout.ms": str(SESSION_MS),
}


class ClusterBroker:
    """One broker of a cluster; it keeps its port when it is restarted."""

    def __init__(
        self, broker_id: int, directory: Path, state: str, overrides: Mapping[str, str]
    ) -> None:
        self.broker_id = broker_id
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        self.directory = directory
        #: Address for clients and other brokers, if it is not the address of the listener.
        self.advertised = ""
        self._state = state
        self._overrides = {**OVERRIDES, **overrides}
        self._process: subprocess.Popen[str] | None = None
        self.environment: dict[str, str] = {}

    @property
    def log(self) -> Path:
        return self.directory.with_suffix(".log")

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "partage", "broker", "--listen", self.address]
        command += ["--data-dir", str(self.directory), "--broker-id", str(self.broker_id)]
        command += ["--state", self._state]
        if self.advertised:
            command += ["--advertised", self.advertised]
        for name, value in self._overrides.items():
            command += ["--override", f"{name}={value}"]
        return command

    def launch(self) -> None:
        """Start the process without waiting for it."""
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **self.environment},
            )

    def wait_ready(self) -> None:
        """Return once it serves requests."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, self.log_text()
        self.address = line

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def start_refused(self) -> str:
        """Start it, expect a refusal, and return its output."""
        done = subprocess.run(
            self.command(), capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 1, done.stdout + done.stderr
        return done.stderr

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.wait()

    def stop(self) -> None:
        """Stop it cleanly."""
        self.send(signal.SIGTERM)
        assert self.wait() == 0, self.log_text()

    def wait(self) -> int:
        process = self._process
        assert process is not None, "it is not running"
        code = process.wait(PATIENCE_S)
        assert process.stdout is not None
        process.stdout.close()
        self._process = None
        return code

    def log_text(self) -> str:
        return f"broker {self.broker_id}: {self.log.read_text()}"


@contextmanager
def brokers(
    directory: Path,
    servers: str,
    path: str,
    ids: Sequence[int] = (1, 2),
    overrides: Mapping[str, str] | None = None,
    *,
    has_racks: bool = False,
) -> Iterator[dict[int, ClusterBroker]]:
    """Yield running brokers by id. With ``has_racks``, broker 1 is in rack "rack-1"."""
    state = f"zookeeper://{servers}{path}"
    directory.mkdir(exist_ok=True)
    made = {
        n: ClusterBroker(
            n,
            directory / f"broker{n}",
            state,
            {**(overrides or {}), **({"broker.rack": f"rack-{n}"} if has_racks else {})},
        )
        for n in ids
    }
    try:
        for broker in made.values():
            broker.launch()
        for broker in made.values():
            broker.wait_ready()
        eventually(lambda: know_each_other(made))
        yield made
    finally:
        for broker in made.values():
            if broker.is_running:
                broker.send(signal.SIGCONT)
                broker.kill()


def know_each_other(running: Mapping[int, ClusterBroker]) -> bool:
    """True if each of these brokers lists all of them, and knows groups of each."""
    everybody = DescribeClusterRequest(include_cluster_authorized_operations=False)
    groups = FindCoordinatorRequest(coordinator_keys=[f"g{n}" for n in range(40)])
    for broker in running.values():
        with RawClient(broker.address, timeout_s=PATIENCE_S) as raw:
            shown = {each.broker_id for each in raw.request(DESCRIBE_CLUSTER, everybody).brokers}
            found = {each.node_id for each in raw.request(FIND_COORDINATOR, groups).coordinators}
        if not (running.keys() <= shown and running.keys() <= found and -1 not in found):
            return False
    return True


def bootstrap(running: Mapping[int, ClusterBroker]) -> str:
    """Return the addresses of all brokers."""
    return ",".join(broker.address for broker in running.values())


def create(running: Mapping[int, ClusterBroker], name: str, held_by: Sequence[int]) -> None:
    """Create a topic with one partition on each of these brokers."""
    client = AdminClient({"bootstrap.servers": bootstrap(running), "log_level": 0})
    made = NewTopic(name, len(held_by), replica_assignment=[[broker] for broker in held_by])
    client.create_topics([made], request_timeout=30)[name].result(PATIENCE_S)
