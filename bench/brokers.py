"""The brokers that are asked: ours, ours without a core behind it, and Apache Kafka."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from bench.machine import BROKER_CORE, SCRATCH
from partage.testing.process import BrokerProcess

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from interop.peers.kafka import JVM_FOR_BENCHMARKS, VERSION, ApacheKafka

OURS: Final = "partage"
BARE: Final = "bare handler"
KAFKA: Final = f"Apache Kafka {VERSION}"

#: Both keep their groups in so many partitions, form a group at once, and let sessions be short.
_OVERRIDES: Final = {
    "offsets.topic.num.partitions": "50",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
}
#: What Kafka calls syncing each write before it is acknowledged.
_KAFKA_SYNCED: Final = {"log.flush.interval.messages": "1"}


class Broker(NamedTuple):
    """A broker process as others see it: where it listens, and what it has used."""

    name: str
    address: tuple[str, int]
    pid: int

    @classmethod
    def at(cls, name: str, bootstrap: str, pid: int) -> Broker:
        """One that listens at HOST:PORT."""
        host, _, port = bootstrap.rpartition(":")
        return cls(name, (host, int(port)), pid)

    @property
    def bootstrap(self) -> str:
        """HOST:PORT."""
        return f"{self.address[0]}:{self.address[1]}"

    def cpu_s(self) -> float:
        """CPU seconds of all its threads so far."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def memory_bytes(self) -> int:
        """Resident memory."""
        return int(psutil.Process(self.pid).memory_info().rss)


class Hold(NamedTuple):
    """How long one callback held our broker's loop, and where it was."""

    held_s: float
    where: str


class Host:
    """A broker that can be killed and started again, on what it had written."""

    def __init__(self, name: str, process: BrokerProcess | ApacheKafka, cores: set[int]) -> None:
        self.name = name
        self._process = process
        self._cores = cores

    def start(self) -> Broker:
        """Start it, and return once it answers."""
        with pinned(self._cores):
            self._process.start()
        if isinstance(self._process, BrokerProcess):
            return Broker.at(self.name, self._process.bootstrap_servers, self._process.pid)
        assert self._process.process is not None
        return Broker.at(self.name, self._process.bootstrap, self._process.process.pid)

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        self._process.kill()


@contextmanager
def pinned(cores: set[int]) -> Iterator[None]:
    """Whatever is started meanwhile keeps to these cores, with all its threads."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def directory() -> Iterator[Path]:
    """A directory for a broker's files, on the disk that is measured."""
    with tempfile.TemporaryDirectory(prefix="partage-bench-", dir=SCRATCH) as path:
        yield Path(path)


@contextmanager
def ours_hosted(*, sync: str = "disk", is_pinned: bool = True) -> Iterator[Host]:
    """``partage broker``, not started."""
    with directory() as path:
        process = BrokerProcess(path, overrides=_OVERRIDES, sync=sync)
        try:
            yield Host(OURS, process, _cores(is_pinned))
        finally:
            process.remove()


@contextmanager
def kafka_hosted(*, sync: str = "os", is_pinned: bool = True) -> Iterator[Host]:
    """Apache Kafka, not started; ``sync`` as ours has it, "os" being its default."""
    settings = {**_OVERRIDES, **(_KAFKA_SYNCED if sync == "disk" else {})}
    with directory() as path:
        process = ApacheKafka(path, overrides=settings, jvm=JVM_FOR_BENCHMARKS)
        try:
            yield Host(KAFKA, process, _cores(is_pinned))
        finally:
            process.close()


@contextmanager
def ours(*, sync: str = "disk", is_pinned: bool = True) -> Iterator[Broker]:
    """``partage broker``, running."""
    with ours_hosted(sync=sync, is_pinned=is_pinned) as host:
        yield host.start()


@contextmanager
def kafka(*, sync: str = "os", is_pinned: bool = True) -> Iterator[Broker]:
    """Apache Kafka, running."""
    with kafka_hosted(sync=sync, is_pinned=is_pinned) as host:
        yield host.start()


@contextmanager
def without_core() -> Iterator[Broker]:
    """Our broker's connections with a handler that always says yes (`bench.bare`)."""
    with pinned({BROKER_CORE}):
        command = [sys.executable, "-m", "bench.bare"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Broker.at(BARE, process.stdout.readline().strip(), process.pid)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def watched(holds: list[Hold]) -> Iterator[Broker]:
    """``partage broker`` with `bench.watched`; once it has ended, ``holds`` are the longest."""
    with directory() as path, (path / "told").open("w+") as told:
        command = [sys.executable, "-m", "bench.watched", "broker", "--listen", "127.0.0.1:0"]
        command += ["--data-dir", str(path / "data")]
        for name, value in _OVERRIDES.items():
            command += ["--override", f"{name}={value}"]
        with pinned({BROKER_CORE}):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=told, text=True)
        try:
            assert process.stdout is not None
            yield Broker.at(OURS, process.stdout.readline().strip(), process.pid)
        finally:
            process.terminate()
            process.communicate(timeout=60)
        told.seek(0)
        holds += [Hold(**json.loads(line)) for line in told if line.startswith("{")]


def starts(with_kafka: bool) -> list[Callable[..., AbstractContextManager[Broker]]]:
    """Ours, and Kafka if it is wanted."""
    return [ours, kafka] if with_kafka else [ours]


def _cores(is_pinned: bool) -> set[int]:
    return {BROKER_CORE} if is_pinned else os.sched_getaffinity(0)
