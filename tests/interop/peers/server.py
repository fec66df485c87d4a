"""A broker in a separate process: start, wait, stop or kill."""

from __future__ import annotations

import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from polled_conditions import PATIENCE_S

#: ApiVersions v0 with correlation id 7 and no client id: every broker answers it.
_ASK_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)


class NotReadyError(Exception):
    """A broker ended, or did not answer in time; the message has the end of its log."""


class BrokerProcess(ABC):
    """One broker and its directory, which is temporary unless given.

    ``start`` returns when the broker answers requests. It can be started again after ``stop`` or
    ``kill``, with the same address and data.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="partage-interop-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log = self.directory / "broker.log"
        self.bootstrap = ""
        self.process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def start(self) -> Self:
        """Start it and wait until it answers; raise `NotReadyError` if it does not."""

    @abstractmethod
    def override(self, name: str, value: str) -> None:
        """Change a setting; it takes effect with the next start."""

    def stop(self, timeout_s: float = PATIENCE_S) -> None:
        """Send SIGTERM and wait for an orderly end; send SIGKILL after the timeout."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send SIGKILL or another signal that ends it, and wait for the end."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait()
            self.process = None

    def close(self) -> None:
        """Stop it, and delete its directory if it is temporary."""
        self.stop()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def log_end(self, lines: int = 30) -> str:
        """Return the last lines of its log."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def wait_until_it_answers(self, timeout_s: float) -> None:
        """Wait until ``bootstrap`` answers ApiVersions; raise `NotReadyError` after the timeout."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            if self.process is None or self.process.poll() is not None:
                raise NotReadyError(f"the broker ended while starting:\n{self.log_end()}")
            if answers(self.bootstrap):
                return
            time.sleep(0.1)
        raise NotReadyError(f"no answer from {self.bootstrap} in {timeout_s} s:\n{self.log_end()}")


def answers(bootstrap: str) -> bool:
    """Return True if a broker at HOST:PORT answers ApiVersions."""
    host, _, port = bootstrap.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=2) as connection:
            connection.sendall(_ASK_VERSIONS)
            return len(connection.recv(4)) > 0
    except OSError:
        return False
