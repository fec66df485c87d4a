"""``partage broker`` as users run it: its first line, its log and its exit code."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from partage.testing.broker import TEST_OVERRIDES
from polled_conditions import PATIENCE_S

PARTAGE = [sys.executable, "-m", "partage"]
EXIT_TIMEOUT_S = PATIENCE_S


def run_partage(*args: str | Path, input: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``partage ARGS`` until it ends."""
    return subprocess.run(
        [*PARTAGE, *map(str, args)],
        input=input,
        capture_output=True,
        text=True,
        timeout=EXIT_TIMEOUT_S,
        check=False,
    )


class RunningBroker:
    """A running broker; ``servers`` is the line that it printed."""

    def __init__(self, process: subprocess.Popen[str], log: Path, servers: str) -> None:
        self.process = process
        self.servers = servers
        self._log = log

    def log_text(self) -> str:
        """Return its log."""
        return self._log.read_text()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(EXIT_TIMEOUT_S)


@contextmanager
def running_broker(
    data_dir: Path,
    *args: str,
    listen: str = "127.0.0.1:0",
    descriptors: int | None = None,
    file_bytes_max: int | None = None,
) -> Iterator[RunningBroker]:
    """Run a broker on ``data_dir``.

    ``descriptors`` limits its files and sockets, ``file_bytes_max`` the size of each of its files.
    """
    command: Sequence[str] = [*PARTAGE, "broker", "--listen", listen, "--data-dir", str(data_dir)]
    command = [*command, *args]
    for name, value in TEST_OVERRIDES.items():
        command += ["--override", f"{name}={value}"]
    if descriptors is not None:
        command = ["sh", "-c", f'ulimit -n {descriptors} && exec "$0" "$@"', *command]
    if file_bytes_max is not None:
        command = ["sh", "-c", f'ulimit -f {file_bytes_max // 512} && exec "$0" "$@"', *command]
    log = data_dir.parent / f"{data_dir.name}.log"
    with log.open("a") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline().strip()
        assert line, f"ended with code {process.wait(EXIT_TIMEOUT_S)}: {log.read_text()}"
        yield RunningBroker(process, log, line)
    finally:
        process.stdout.close()
        if process.poll() is None:
            process.kill()
            process.wait(EXIT_TIMEOUT_S)
