"""The examples in ``examples/`` are run, each as its docstring says."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Producer

from partage.testing import BrokerProcess, ThreadedBroker
from polled_conditions import PATIENCE_S

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


class Example:
    """A running example; iterate for the lines that it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the example ended with exit code {self._process.wait()}"
        return line.rstrip("\n")

    def interrupt(self) -> None:
        """Press Ctrl-C; the example must end without an error."""
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(PATIENCE_S) == 0


@contextmanager
def running(name: str, *arguments: str) -> Iterator[Example]:
    """Run an example, and kill it at the end if it still runs."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Example(process)
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("consumer.py", "SERVERS TOPIC GROUP"),
        ("async_consumer.py", "SERVERS TOPIC GROUP"),
        ("own_assignor.py", "SERVERS TOPIC GROUP [PARTITION...]"),
        ("leader_election.py", "SERVERS GROUP NAME"),
        ("exactly_once.py", "SERVERS SOURCE TARGET GROUP WORKER"),
        ("exactly_once_aiokafka.py", "SERVERS SOURCE TARGET GROUP PARTITION..."),
        ("spark_batch.py", "SERVERS TOPIC"),
        ("spark_stream.py", "SERVERS TOPIC GROUP CHECKPOINT"),
    ],
)
def test_example_without_arguments_prints_usage(name, arguments):
    ran = subprocess.run(
        [sys.executable, EXAMPLES / name], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert ran.stderr == f"usage: python examples/{name} {arguments}\n"


def test_operator_example_without_address_prints_usage():
    ran = subprocess.run([EXAMPLES / "operator.sh"], capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    assert "usage: examples/operator.sh HOST:PORT" in ran.stderr


def produce(servers: str, *values: bytes, key: bytes | None = None) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce("flights", value, key)
    assert producer.flush(PATIENCE_S) == 0


def token(line: str) -> int:
    """Return the token in a line of the election."""
    return int(line.rpartition(" ")[2])


def test_consumer_continues_after_committed_records(partage_broker: ThreadedBroker) -> None:
    servers = partage_broker.bootstrap_servers
    produce(servers, b"one", b"two")
    with running("consumer.py", servers, "flights", "tower") as example:
        assert next(example) == "flights-0 offset 0: one"
        assert next(example) == "flights-0 offset 1: two"
        produce(servers, b"three")
        assert next(example) == "flights-0 offset 2: three"
        example.interrupt()
    produce(servers, b"four")
    with running("consumer.py", servers, "flights", "tower") as example:
        lines = [next(example)]
        while "four" not in lines[-1]:  # Uncommitted records are read again.
            lines.append(next(example))
        assert "flights-0 offset 0: one" not in lines
        example.interrupt()


def test_async_consumer_prints_assignment_and_records(partage_broker: ThreadedBroker) -> None:
    servers = partage_broker.bootstrap_servers
    partage_broker.create_topic("flights", partitions=2)
    produce(servers, b"one", b"two", key=b"EWR")
    with running("async_consumer.py", servers, "flights", "tower") as example:
        assert next(example) == "assigned: 0 1"
        assert next(example).endswith("offset 0: one")
        assert next(example).endswith("offset 1: two")
        example.interrupt()


def test_own_assignor_gives_preferred_partitions(partage_broker: ThreadedBroker) -> None:
    servers = partage_broker.bootstrap_servers
    partage_broker.create_topic("flights", partitions=4)
    arguments = (servers, "flights", "tower")
    with running("own_assignor.py", *arguments, "0", "1") as first:
        assert next(first) == "assigned: 0 1 2 3"
        with running("own_assignor.py", *arguments, "2", "3") as second:
            assert next(first) == "revoked: 2 3"
            assert next(second) == "assigned: 2 3"
            second.interrupt()
        assert next(first) == "assigned: 2 3"
        first.interrupt()


def test_other_process_leads_after_leader_ends(partage_broker: ThreadedBroker) -> None:
    arguments = (partage_broker.bootstrap_servers, "scheduler")
    with running("leader_election.py", *arguments, "ada") as ada:
        lines = {next(ada), next(ada)}
        assert "the leader is ada" in lines
        (first,) = map(token, lines - {"the leader is ada"})
        with running("leader_election.py", *arguments, "ben") as ben:
            assert next(ben) == "the leader is ada"
            ada.interrupt()
            line = next(ben)
            assert line.startswith("ben leads with token ")
            assert token(line) > first
            ben.interrupt()


@pytest.mark.parametrize(
    ("file", "passed"), [("test_with_broker.py", 3), ("test_simulated_world.py", 1)]
)
def test_pytest_example_passes(file: str, passed: int, tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / file, tmp_path)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    assert f"{passed} passed" in ran.stdout


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(600)
def test_spark_example_counts_by_key(partage_broker: ThreadedBroker) -> None:
    servers = partage_broker.bootstrap_servers
    produce(servers, b"one", b"two", key=b"EWR")
    produce(servers, b"three", key=b"JFK")
    with running("spark_batch.py", servers, "flights") as example:
        assert [next(example), next(example)] == ["EWR 2", "JFK 1"]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(600)
def test_spark_stream_continues_after_broker_and_query_restart(tmp_path: Path) -> None:
    """The lines of a batch are printed before the group's new position."""

    def lines_until(example: Example, last: str) -> list[str]:
        lines = [next(example)]
        while lines[-1] != last:
            lines.append(next(example))
        return [line for line in lines if line.startswith("EWR")]

    with BrokerProcess(overrides={"group.initial.rebalance.delay.ms": "0"}) as broker:
        servers = broker.bootstrap_servers
        produce(servers, b"one", b"two", key=b"EWR")
        arguments = (servers, "flights", "boards", str(tmp_path / "checkpoint"))
        with running("spark_stream.py", *arguments) as example:
            assert lines_until(example, "committed: 2, lag: 0") == ["EWR one", "EWR two"]
            broker.kill()
            lines_until(example, "no broker answers; the query waits for it")
            broker.start()
            produce(servers, b"three", key=b"EWR")
            assert lines_until(example, "committed: 3, lag: 0") == ["EWR three"]
            example.interrupt()
        produce(servers, b"four", key=b"EWR")
        with running("spark_stream.py", *arguments) as example:
            assert lines_until(example, "committed: 4, lag: 0") == ["EWR four"]
            example.interrupt()


def test_each_example_is_listed() -> None:
    for page, prefix in ((EXAMPLES / "README.md", ""), (ROOT / "README.md", "examples/")):
        text = page.read_text()
        missing = [
            path.name
            for path in EXAMPLES.iterdir()
            if path.suffix in (".py", ".sh", ".ipynb")
            and path.name != "__init__.py"
            and f"]({prefix}{path.name})" not in text
        ]
        assert missing == [], page


def test_each_journey_names_its_tests() -> None:
    """The table says which tests run the scripts of a journey."""
    table = (EXAMPLES / "README.md").read_text()
    tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", table)
    assert len(tests) >= 4
    for path, name in tests:
        assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"


def test_each_example_is_run() -> None:
    named = Path(__file__).read_text()
    files = [path.name for path in EXAMPLES.glob("*.py") if path.name != "__init__.py"]
    assert [name for name in files if f'"{name}"' not in named] == []
    assert len(files) == 10  # tests/broker/test_exactly_once.py runs exactly_once*.py


def test_operator_sees_lag_resets_offsets_and_cleans_up() -> None:
    overrides = {"group.initial.rebalance.delay.ms": "0"}
    with ThreadedBroker(overrides) as broker:
        ran = subprocess.run(
            [EXAMPLES / "operator.sh", broker.bootstrap_servers],
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        lines = ran.stdout.splitlines()
        totals = [line for line in lines if line.startswith("group audit:")]
        assert totals == [
            "group audit: Empty, 0 members, 2 partitions, total lag 0",
            "group audit: Empty, 0 members, 3 partitions, total lag 3",
        ]
        assert any(line.split()[:2] == ["retention.ms", "3600000"] for line in lines)
        assert lines[-2:] == ["deleted group audit", "deleted topic payments"]
