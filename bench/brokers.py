"""The brokers under test: ours, ours without a state machine, Apache Kafka, and kfake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Set
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from bench.machine import BROKER_CORE, SCRATCH
from partage.testing.process import BrokerProcess

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from interop.peers import install, paths
from interop.peers.kafka import JVM_FOR_BENCHMARKS, VERSION, ApacheKafka

OURS: Final = "partage"
BARE: Final = "bare handler"
ECHO: Final = "bare echo"
KAFKA: Final = f"Apache Kafka {VERSION}"
#: franz-go's broker for tests.
KFAKE: Final = "kfake"

_BROKER_CORES: Final = frozenset({BROKER_CORE})
#: For both brokers: the number of shards, no initial rebalance delay, and short sessions. Sessions
#: with the consumer protocol are long, because members send no heartbeats while other groups form.
_OVERRIDES: Final = {
    "offsets.topic.num.partitions": "50",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.max.session.timeout.ms": "600000",
    "group.consumer.session.timeout.ms": "600000",
}
#: Kafka's backlog of 50 overflows when many members connect at once. The kernel then drops the
#: last packet of a handshake, so the client has a connection that Kafka resets after a minute.
_KAFKA_BACKLOG: Final = {"socket.listen.backlog.size": "4096"}
#: kfake's limits of sessions, as above.
_KFAKE_SESSIONS: Final = ("-session-min", "1s", "-session-max", "10m")
#: Kafka's setting to sync each write before it is acknowledged.
_KAFKA_SYNCED: Final = {"log.flush.interval.messages": "1"}


class Broker(NamedTuple):
    """A running broker process: its address and its resource usage."""

    name: str
    address: tuple[str, int]
    pid: int

    @classmethod
    def at(cls, name: str, bootstrap: str, pid: int) -> Broker:
        """Return the broker that listens at ``bootstrap``, HOST:PORT."""
        host, _, port = bootstrap.rpartition(":")
        return cls(name, (host, int(port)), pid)

    @property
    def bootstrap(self) -> str:
        """The address as HOST:PORT."""
        return f"{self.address[0]}:{self.address[1]}"

    def cpu_s(self) -> float:
        """Return the CPU seconds of all its threads so far."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def memory_bytes(self) -> int:
        """Return its resident memory."""
        return int(psutil.Process(self.pid).memory_info().rss)


class LongCallback(NamedTuple):
    """A callback that blocked our broker's event loop: its duration, its stack and its begin.

    ``began_s`` is the time by `time.perf_counter`, which all processes share. ``cpu_s`` is the CPU
    time of its thread: less than the duration if other threads or processes ran meanwhile.
    """

    duration_s: float
    where: str
    began_s: float = 0.0
    cpu_s: float = 0.0


class Host:
    """A broker that can be killed and started again with the same data."""

    def __init__(self, name: str, process: BrokerProcess | ApacheKafka, cores: Set[int]) -> None:
        self.name = name
        self._process = process
        self._cores = cores

    def start(self) -> Broker:
        """Start the broker and return it when it answers."""
        with pinned(self._cores):
            self._process.start()
        if isinstance(self._process, BrokerProcess):
            return Broker.at(self.name, self._process.bootstrap_servers, self._process.pid)
        assert self._process.process is not None
        return Broker.at(self.name, self._process.bootstrap, self._process.process.pid)

    def kill(self) -> None:
        """Kill the broker with SIGKILL."""
        self._process.kill()


@contextmanager
def pinned(cores: Set[int]) -> Iterator[None]:
    """Pin processes that are started in this context to these cores, with all their threads."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def directory(parent: Path = SCRATCH) -> Iterator[Path]:
    """Yield a directory for a broker's files, by default on the disk under test."""
    with tempfile.TemporaryDirectory(prefix="partage-bench-", dir=parent) as path:
        yield Path(path)


@contextmanager
def ours_host(*, sync: str = "disk", cores: Set[int] = _BROKER_CORES) -> Iterator[Host]:
    """Yield ``partage broker``, not started."""
    with directory() as path:
        process = BrokerProcess(path, overrides=_OVERRIDES, sync=sync)
        try:
            yield Host(OURS, process, cores)
        finally:
            process.remove()


@contextmanager
def kafka_host(*, sync: str = "os") -> Iterator[Host]:
    """Yield Apache Kafka, not started. ``sync`` is as for `ours_host`; Kafka's default is "os"."""
    settings = {**_OVERRIDES, **_KAFKA_BACKLOG, **(_KAFKA_SYNCED if sync == "disk" else {})}
    with directory() as path:
        process = ApacheKafka(path, overrides=settings, jvm=JVM_FOR_BENCHMARKS)
        try:
            yield Host(KAFKA, process, _BROKER_CORES)
        finally:
            process.close()


@contextmanager
def ours(*, sync: str = "disk") -> Iterator[Broker]:
    """Yield ``partage broker``, running on one core."""
    with ours_host(sync=sync) as host:
        yield host.start()


@contextmanager
def kafka(*, sync: str = "os") -> Iterator[Broker]:
    """Yield Apache Kafka, running."""
    with kafka_host(sync=sync) as host:
        yield host.start()


def bare_handler() -> AbstractContextManager[Broker]:
    """Return our broker's connections with a handler that always succeeds, to be started."""
    return _bare_server("bench.bare_handler", BARE)


def bare_echo() -> AbstractContextManager[Broker]:
    """Return a server that returns each frame unchanged, to be started."""
    return _bare_server("bench.bare_echo", ECHO)


@contextmanager
def _bare_server(module: str, name: str) -> Iterator[Broker]:
    with pinned(_BROKER_CORES):
        command = [sys.executable, "-m", module]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Broker.at(name, process.stdout.readline().strip(), process.pid)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def kfake(*, sync: str = "memory") -> Iterator[Broker]:
    """Yield kfake, running.

    Args:
        sync: "memory" for its default, without files; "disk" to sync each write, "os" not to.
    """
    _build(install.KFAKE)
    with directory() as path:
        command = [str(paths.KFAKE), *_KFAKE_SESSIONS]
        if sync != "memory":
            command += ["-data-dir", str(path), *(["-sync"] if sync == "disk" else [])]
        with pinned(_BROKER_CORES):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            yield Broker.at(KFAKE, process.stdout.readline().strip(), process.pid)
        finally:
            process.kill()
            process.communicate()


def go_peer() -> str:
    """Return the path of the program with franz-go; build it if it is out of date."""
    _build(next(step for step in install.STEPS if step.made == paths.GO_PEER))
    return str(paths.GO_PEER)


def _build(step: install.Step) -> None:
    if install.main([step]) != 0:
        raise SystemExit(1)


@contextmanager
def monitored(
    callbacks: list[LongCallback], *, sync: str = "disk", parent: Path = SCRATCH
) -> Iterator[Broker]:
    """Yield ``partage broker`` under `bench.loop_monitor`.

    At the end, the longest callbacks are appended to ``callbacks``.

    Args:
        callbacks: The list of the callbacks.
        sync: As for `ours_host`.
        parent: The directory under which the broker has its files.
    """
    with directory(parent) as path, (path / "report").open("w+") as report:
        command = [sys.executable, "-m", "bench.loop_monitor", "broker", "--listen", "127.0.0.1:0"]
        command += ["--data-dir", str(path / "data"), "--sync", sync]
        for name, value in _OVERRIDES.items():
            command += ["--override", f"{name}={value}"]
        with pinned(_BROKER_CORES):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=report, text=True)
        try:
            assert process.stdout is not None
            yield Broker.at(OURS, process.stdout.readline().strip(), process.pid)
        finally:
            process.terminate()
            process.communicate(timeout=60)
        report.seek(0)
        callbacks += [LongCallback(**json.loads(line)) for line in report if line.startswith("{")]


def starts(
    with_kafka: bool, *, sync: str | None = None, with_kfake: bool = False
) -> list[AbstractContextManager[Broker]]:
    """Return our broker and, if requested, its peers, to be started.

    Args:
        with_kafka: False leaves all peers out.
        sync: "disk" or "os"; by default each broker has its own default.
        with_kfake: True adds kfake. It keeps everything in memory unless ``sync`` is "disk".
    """
    how = {} if sync is None else {"sync": sync}
    peers = [kafka(**how)] if with_kafka else []
    if with_kafka and with_kfake:
        peers.append(kfake(sync="disk") if sync == "disk" else kfake())
    return [ours(**how), *peers]
