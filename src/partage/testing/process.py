"""A broker in a child process, with a real disk, which can be killed and restarted."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path
from types import TracebackType
from typing import Self

from partage.model.arguments import check_path
from partage.testing.settings import Settings, to_texts

_STOP_TIMEOUT_S = 30.0
_ANY_PORT = "127.0.0.1:0"


class BrokerProcess:
    """A broker as a child process, ``python -m partage.broker``.

    A restarted broker keeps its port, so that clients find it. On Linux, no other process can take
    the port while the broker does not run. ``log_path`` is the file with its log.

    Args:
        data_dir: the data directory, which is created if needed; by default a temporary one, which
            `remove` deletes.
        overrides: broker settings by Kafka's names. Values are strings, booleans or numbers.
        sync: the value of ``--sync``.
    """

    def __init__(
        self,
        data_dir: Path | str | None = None,
        *,
        overrides: Settings | None = None,
        sync: str = "disk",
    ) -> None:
        if data_dir is not None:
            check_path("data_dir", data_dir)
        self._is_temporary = data_dir is None
        self.data_dir = Path(data_dir or tempfile.mkdtemp(prefix="partage-"))
        self.log_path = self.data_dir / "broker.log"
        self._overrides = to_texts(overrides or {})
        self._sync = sync
        self._process: subprocess.Popen[str] | None = None
        self._listen = _ANY_PORT

    @property
    def bootstrap_servers(self) -> str:
        """Address for clients, ``127.0.0.1:PORT``."""
        return self._listen

    @property
    def pid(self) -> int:
        """Process id, for signals."""
        return self._running().pid

    def start(self) -> Self:
        """Start, and return once clients can connect.

        Raises:
            RuntimeError: the broker runs already, or it ended instead; then the message has the
                last line of its log.
        """
        if self._process is not None:
            if self._process.poll() is None:
                raise RuntimeError("the broker is running already: call kill() or stop() first")
            self.stop()  # It was ended by a signal from elsewhere.
        if self._listen == _ANY_PORT:
            self._listen = self._reserve_address()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("a") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ.copy(),
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._process.stdout.close()
            self._process = None
            log_lines = self.log_path.read_text().strip().splitlines()
            raise RuntimeError(
                f"the broker ended with exit code {code}: "
                f"{log_lines[-1] if log_lines else 'no log output'}"
            )
        self._listen = line.strip()
        return self

    def _command(self) -> list[str]:
        """Return the command that starts the broker."""
        command = [sys.executable, "-m", "partage.broker", "--listen", self._listen]
        command += ["--data-dir", str(self.data_dir), "--sync", self._sync]
        for name, value in self._overrides.items():
            command += ["--override", f"{name}={value}"]
        return command

    def _reserve_address(self) -> str:
        """Return the address for the broker, with a reserved port if the system can reserve one.

        On Linux, a bound socket that does not listen keeps the port from other processes. The
        broker can still bind it, because both sockets have ``SO_REUSEADDR``.
        """
        if sys.platform != "linux":
            return _ANY_PORT
        reservation = socket.socket()
        weakref.finalize(self, reservation.close)
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{reservation.getsockname()[1]}"

    def kill(self) -> None:
        """Kill the process, as in a crash (SIGKILL)."""
        self._signal(signal.SIGKILL)

    def stop(self) -> int:
        """Stop the broker cleanly (SIGTERM); return its exit code."""
        return self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> int:
        process = self._running()
        process.send_signal(number)
        try:
            code = process.wait(_STOP_TIMEOUT_S)
        finally:
            if process.stdout is not None:
                process.stdout.close()
        self._process = None
        return code

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise RuntimeError("the broker is not running: call start() first")
        return self._process

    def remove(self) -> None:
        """Kill the process if it runs, and delete its temporary directory."""
        if self._process is not None:
            self.kill()
        if self._is_temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()
