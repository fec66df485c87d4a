"""Start-up: time until a broker answers, its memory then, and imports.

The time of a broker counts from the start of its process until it has answered an ApiVersions
request. All brokers have a data directory without topics or groups, were started once before and
stopped, and take turns. They may use all cores, as a user's broker does. kfake has no files.

The in-process broker is that of the pytest fixture; the module is imported before. The first one in
each process counts.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from bench.brokers import KAFKA, KFAKE, OURS, directory, kafka_host, kfake
from bench.figures import Figure, figures_of_rounds, number
from bench.worker_process import WorkerProcess
from interop.peers.server import answers
from partage.testing import ThreadedBroker

TITLE = "Start-up"

_PARTAGE: Final = str(Path(sys.executable).with_name("partage"))
_ALL_CORES: Final = os.sched_getaffinity(0)
_POLL_S: Final = 0.001
_TIMEOUT_S: Final = 120.0
#: Modules are compiled once, as after an installation with pip.
_ENVIRONMENT: Final = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}


class Start(NamedTuple):
    """The start of one broker: until its first response, and its resident memory then."""

    ms: float
    memory_mb: float


class Command(NamedTuple):
    """The command of a broker, and its address, empty if the broker prints it."""

    arguments: Sequence[str]
    bootstrap: str = ""


def measure(*, is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    """Measure brokers, then the imports of users, and the broker of the fixture."""
    rounds = 2 if is_quick else 5
    yield from _brokers(rounds, with_kafka)
    yield from _users(rounds)


# Brokers.


def _brokers(rounds: int, with_kafka: bool) -> Iterator[Figure]:
    seen: dict[str, list[Start]] = {}
    with ExitStack() as stack:
        commands = {OURS: stack.enter_context(_our_command())}
        if with_kafka:
            commands[KAFKA] = stack.enter_context(_kafka_command())
            commands[KFAKE] = stack.enter_context(_kfake_command())
        for turn in range(rounds + 1):
            for name, command in commands.items():
                start = _time_start(command)
                if turn:  # the first start creates files and fills the page cache
                    seen.setdefault(name, []).append(start)
    yield from figures_of_rounds(
        "partage broker: from the start of the process until its first response",
        "ms",
        {name: [each.ms for each in starts] for name, starts in seen.items()},
        less_is_better=True,
        wanted=150,
        note="a data directory without topics; all cores",
    )
    yield from figures_of_rounds(
        "the same: resident memory",
        "MB",
        {name: [each.memory_mb for each in starts] for name, starts in seen.items()},
        less_is_better=True,
        wanted=60,
        note="Kafka's depends on its heap settings" if with_kafka else "",
    )


@contextmanager
def _our_command() -> Iterator[Command]:
    with directory() as path:
        data = str(path / "data")
        yield Command([_PARTAGE, "broker", "--listen", "127.0.0.1:0", "--data-dir", data])


@contextmanager
def _kafka_command() -> Iterator[Command]:
    """Yield the command of a node with a formatted directory, which keeps its address."""
    with kafka_host() as host:
        broker = host.start()
        command = Command(psutil.Process(broker.pid).cmdline(), broker.bootstrap)
        host.kill()
        yield command


@contextmanager
def _kfake_command() -> Iterator[Command]:
    with kfake() as broker:
        command = Command(psutil.Process(broker.pid).cmdline())
    yield command


def _time_start(command: Command) -> Start:
    """Start a broker, wait for its first response, and stop it."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        command.arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=_ENVIRONMENT,
    )
    with process:
        try:
            assert process.stdout is not None
            bootstrap = command.bootstrap or process.stdout.readline().strip()
            while not answers(bootstrap):
                if process.poll() is not None or time.perf_counter() > begin + _TIMEOUT_S:
                    raise RuntimeError(f"this broker did not start: {command.arguments}")
                time.sleep(_POLL_S)
            took_ms = (time.perf_counter() - begin) * 1e3
            memory_mb = psutil.Process(process.pid).memory_info().rss / 1e6
        finally:
            process.terminate()
    return Start(took_ms, memory_mb)


# Users.


def _users(rounds: int) -> Iterator[Figure]:
    python = [sys.executable, "-c"]
    bare_ms = statistics.median(_times_ms([*python, "pass"], rounds))
    rows = (
        ("python -c 'import partage'", [*python, "import partage"], 60),
        ("partage --help", [_PARTAGE, "--help"], 150),
    )
    for what, command, wanted in rows:
        yield from figures_of_rounds(
            what,
            "ms",
            {OURS: _times_ms(command, rounds)},
            less_is_better=True,
            wanted=wanted,
            note=f"the whole process; Python alone takes {number(bare_ms)} ms",
        )
    yield from figures_of_rounds(
        "start of the broker of the pytest fixture, after the import",
        "ms",
        {OURS: [_fixture_ms() for _ in range(rounds)]},
        less_is_better=True,
        wanted=10,
    )


def _times_ms(command: Sequence[str], rounds: int) -> list[float]:
    """Return the time of a process in each round, after one more run that compiles modules."""
    times = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=_ENVIRONMENT)
        times.append((time.perf_counter() - begin) * 1e3)
    return times[1:]


def _fixture_ms() -> float:
    with WorkerProcess(_ALL_CORES) as process:
        return process.submit(start_fixture).result()


def start_fixture() -> float:
    """Start a broker in this process, whose module is imported; return the time in ms."""
    begin = time.perf_counter()
    with ThreadedBroker():
        return (time.perf_counter() - begin) * 1e3
