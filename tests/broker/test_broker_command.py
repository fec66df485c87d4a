"""The command ``partage broker``: output, refused options and exit codes."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest

from partage.broker.broker import Broker
from partage.broker.foreground import serve
from partage.log.layout import CHECKPOINT_FILE
from partage.log.memory_disk import MemoryDisk
from partage.model.settings import BrokerSettings
from partage.wire.apis.fetch import FETCH

from .broker_command import run_partage, running_broker
from .raw_client import RawClient
from .requests import LAST_VERSION_BY_NAME, create, fetch_request, metadata


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_command_prints_address_and_ends_on_signal(tmp_path, number):
    with running_broker(tmp_path / "data") as broker:
        assert re.fullmatch(r"127\.0\.0\.1:\d+", broker.servers)
        with RawClient(broker.servers) as raw:
            create(raw, "t")
            raw.send(
                FETCH, fetch_request("t", max_wait_ms=600_000, min_bytes=1), LAST_VERSION_BY_NAME
            )
            assert broker.end(number) == 0
            assert raw.is_closed()
        assert broker.process.stdout.read() == ""
        assert "Traceback" not in broker.log_text()
    assert (tmp_path / "data" / "t-0").is_dir()


def test_data_directory_in_use_is_refused(tmp_path):
    data = tmp_path / "data"
    with running_broker(data) as broker:
        ran = run_partage("broker", "--listen", "127.0.0.1:0", "--data-dir", data)
        assert (ran.returncode, ran.stdout) == (1, "")
        (line,) = ran.stderr.splitlines()
        assert f"in use by another broker (process {broker.process.pid}); stop that broker" in line
        broker.process.kill()
        broker.process.wait()
        with running_broker(data):
            pass


def test_port_in_use_is_refused(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = run_partage("broker", "--listen", address, "--data-dir", tmp_path / "data")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.splitlines()[-1].endswith(
        f"cannot listen on {address}: Address already in use; choose another address with --listen"
    )
    assert not (tmp_path / "data").exists()


def test_foreign_address_is_refused(tmp_path):
    ran = run_partage("broker", "--listen", "192.0.2.1:0", "--data-dir", tmp_path / "data")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "cannot listen on 192.0.2.1:0: Cannot assign requested address; " in ran.stderr
    assert not (tmp_path / "data").exists()


def test_port_in_use_is_refused_with_an_existing_directory(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = run_partage("broker", "--listen", address, "--data-dir", tmp_path)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert f"cannot listen on {address}: Address already in use; " in ran.stderr


def test_unknown_host_is_refused(tmp_path):
    ran = run_partage("broker", "--listen", "no.such.host.invalid:0", "--data-dir", tmp_path / "d")
    assert (ran.returncode, ran.stdout) == (1, "")
    (line,) = ran.stderr.splitlines()
    assert "cannot listen on no.such.host.invalid:0: " in line
    assert not (tmp_path / "d").exists()


def test_advertised_address_is_sent_to_clients(tmp_path):
    options = ("--ephemeral", "--advertised", "broker.test:1234")
    with running_broker(tmp_path / "none", *options, listen="[::1]:0") as broker:
        host, _, port = broker.servers.rpartition(":")
        assert host == "[::1]"
        with RawClient(f"::1:{port}", family=socket.AF_INET6) as raw:
            (node,) = metadata(raw).brokers
            assert (node.host, node.port) == ("broker.test", 1234)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("--listen here", "; use HOST:PORT"),
        ("--listen 127.0.0.1:²", "; use HOST:PORT"),
        ("--listen 0.0.0.0:0", "add --advertised HOST:PORT"),
        (
            "--advertised 0.0.0.0:9092",
            "invalid --advertised '0.0.0.0:9092': clients cannot connect",
        ),
        ("--override x", "--override requires NAME=VALUE, not 'x'"),
        ("--override num.partition=3", "did you mean num.partitions?"),
        ("--override num.partitions=0", "must be between 1 and 10000"),
        ("--override socket.send.buffer.bytes=0", "must be at least 1, or -1"),
        ("--override group.max.session.timeout.ms=5000", "group.min.session.timeout.ms is 6000"),
        (
            "--override group.consumer.session.timeout.ms=5000",
            "group.consumer.min.session.timeout.ms is 45000",
        ),
        (
            "--override group.consumer.max.assignment.interval.ms=999",
            "group.consumer.assignment.interval.ms is 1000",
        ),
        (
            "--override group.consumer.migration.policy=never",
            "must be one of disabled, upgrade, downgrade, bidirectional",
        ),
        (
            "--override group.coordinator.rebalance.protocols=classic,streams",
            "'streams' is not supported; supported are classic, consumer",
        ),
        (
            "--override group.coordinator.rebalance.protocols=consumer",
            "must have classic: it cannot be disabled",
        ),
        ("--override node.id=-1", "must be between 0"),
        ("--override log.retention.ms=soon", "log.retention.ms=soon: "),
        ("--sync never", "--sync"),
    ],
)
def test_invalid_options_are_refused(options, why, tmp_path):
    ran = run_partage("broker", "--data-dir", tmp_path / "data", *options.split())
    assert (ran.returncode, ran.stdout) == (2, "")
    (line,) = ran.stderr.splitlines()
    assert why in line
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("options", "code", "why"),
    [
        ("--override x", 2, "error: --override requires NAME=VALUE, not 'x'\n"),
        ("--sync never", 2, "argument --sync: invalid choice: 'never' (choose from "),
        ("--data-dir /dev/null", 1, "error: cannot use data directory '/dev/null': File exists\n"),
    ],
)
def test_module_refuses_what_command_refuses(options, code, why, tmp_path):
    """``python -m partage.broker`` needs no package of ``partage[cli]``."""
    program = "import sys; sys.modules |= dict.fromkeys(['typer', 'rich', 'confluent_kafka']);"
    program += "import runpy; runpy.run_module('partage.broker', run_name='__main__')"
    ran = subprocess.run(
        [sys.executable, "-c", program, *options.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (code, "")
    assert why in ran.stderr


def test_data_directory_not_creatable_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for place, why in [("file", "File exists"), ("file/data", "Not a directory")]:
        ran = run_partage("broker", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / place)
        assert (ran.returncode, ran.stdout) == (1, "")
        assert ran.stderr == f"error: cannot use data directory '{tmp_path / place}': {why}\n"


def test_data_directory_failure_is_named(tmp_path):
    """Not the address, which is not the cause."""
    data = tmp_path / "data"
    (data / CHECKPOINT_FILE).mkdir(parents=True)
    ran = run_partage("broker", "--listen", "127.0.0.1:0", "--data-dir", data)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert f"error: cannot use data directory '{data}': " in ran.stderr
    assert f"Is a directory: '{data / CHECKPOINT_FILE}'" in ran.stderr
    assert "Traceback" not in ran.stderr


class PausingDisk(MemoryDisk):
    """A disk on which opening the partitions of a topic can be paused."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses = False
        self.has_paused = threading.Event()
        self.may_go_on = threading.Event()
        self.opened = set()

    def names(self, directory):
        if self.pauses and directory.startswith("t-"):
            self.opened.add(directory)
            self.has_paused.set()
            assert self.may_go_on.wait(20)
        return super().names(directory)


def test_signal_during_start_ends_broker(capsys):
    """Recovery may take long; the next start repeats it."""
    disk, settings = PausingDisk(), BrokerSettings(offsets_partitions=1)

    async def before():
        broker = await Broker.start(disk, settings, host="127.0.0.1", port=0)
        await broker.log_manager.create("t", 5, {})
        await broker.stop()

    async def story():
        starting = asyncio.create_task(serve(disk, settings, "127.0.0.1", 0, None))
        assert await asyncio.to_thread(disk.has_paused.wait, 20)
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait({starting}, timeout=5)
        disk.may_go_on.set()
        await starting

    asyncio.run(before())
    disk.pauses = True
    asyncio.run(story())
    assert capsys.readouterr().out == ""
    assert len(disk.opened) == 1
