"""A real ZooKeeper for tests, with one or three servers, from the jars of PySpark."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from free_ports import free_ports
from partage.spark.java import find_java
from polled_conditions import eventually

JARS = Path(pyspark.__file__).parent / "jars"
#: Jars that the server needs; loading all of Spark's jars takes twice as long.
NEEDED = (
    "zookeeper",
    "slf4j-api",
    "log4j",
    "netty",
    "metrics-core-4",
    "snappy-java",
    "commons-io",
    "commons-cli",
    "audience-annotations",
)


class ZooKeeperServer:
    """One ZooKeeper server; ``port`` is for clients."""

    def __init__(
        self,
        directory: Path,
        port: int,
        peers: dict[int, str],
        number: int,
        more: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.port = port
        self._number = number
        self._peers = peers
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        lines = [
            "tickTime=250",
            "initLimit=40",
            "syncLimit=20",
            "minSessionTimeout=500",
            "maxSessionTimeout=60000",
            f"dataDir={directory}",
            f"clientPort={port}",
            "clientPortAddress=127.0.0.1",
            "admin.enableServer=false",
            "4lw.commands.whitelist=ruok,srvr",
            "maxClientCnxns=0",
        ]
        lines += more
        lines += [f"server.{peer}={address}" for peer, address in peers.items()]
        (directory / "zoo.cfg").write_text("\n".join(lines) + "\n")
        (directory / "myid").write_text(f"{number}\n")

    def start(self) -> None:
        jars = sorted(str(jar) for jar in JARS.glob("*.jar") if jar.name.startswith(NEEDED))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        java = find_java().home / "bin" / "java"
        command = [str(java), "-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        # Test data need not survive a power loss.
        command += ["-Dzookeeper.forceSync=no", "-cp", ":".join(jars), main]
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(self.directory / "zoo.cfg")], stdout=log, stderr=log
            )

    def four_letter_word(self, word: bytes) -> str:
        """Return the response to a four-letter word, or an empty string."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(word)
                return b"".join(iter(lambda: connection.recv(4096), b"")).decode()
        except OSError:
            return ""

    @property
    def mode(self) -> str:
        """Mode: leader, follower or standalone; empty if the server has none."""
        lines = [
            line
            for line in self.four_letter_word(b"srvr").splitlines()
            if line.startswith("Mode: ")
        ]
        return lines[0].removeprefix("Mode: ") if lines else ""

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def log_tail(self) -> str:
        return (self.directory / "server.log").read_text()[-2000:]


class Ensemble:
    """One or several servers; ``connect_string`` is for ``--state``."""

    def __init__(self, directory: Path, size: int = 1, more: Sequence[str] = ()) -> None:
        ports = free_ports(3 * size)
        peers = {}
        if size > 1:
            peers = {n: f"127.0.0.1:{ports[3 * n + 1]}:{ports[3 * n + 2]}" for n in range(size)}
        self.servers = [
            ZooKeeperServer(directory / str(n), ports[3 * n], peers, n, more) for n in range(size)
        ]

    @property
    def connect_string(self) -> str:
        return ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def start(self) -> None:
        for server in self.servers:
            server.start()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Return once there is a leader."""
        eventually(
            lambda: any(server.mode in ("leader", "standalone") for server in self.servers),
            self.servers[0].log_tail,
        )

    @property
    def leader(self) -> ZooKeeperServer:
        return next(server for server in self.servers if server.mode in ("leader", "standalone"))

    def stop(self) -> None:
        for server in self.servers:
            server.kill()


@contextmanager
def ensemble(directory: Path, size: int = 1, more: Sequence[str] = ()) -> Iterator[Ensemble]:
    """Run an ensemble and delete it afterwards; ``more`` are lines of its configuration."""
    made = Ensemble(directory, size, more)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(directory, ignore_errors=True)


assert os.name == "posix"
