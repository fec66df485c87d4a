"""Runners of ``partage``: in this process, or as a separate process for pipes and signals."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, NamedTuple

from typer.testing import CliRunner

from partage.console.app import app
from partage.console.common.connection import BOOTSTRAP_VARIABLE


class CommandResult(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The JSON document on stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class TerminalCapture:
    """Output on a terminal, read continuously so that the writer never blocks."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._content = bytearray()
        self._reading = Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        with suppress(OSError):  # The writer closed the terminal.
            while chunk := os.read(self._terminal, 1 << 16):
                self._content += chunk

    @property
    def text(self) -> str:
        """Output so far."""
        return self._content.decode(errors="replace")

    def end(self) -> None:
        """Wait for the end of the output."""
        self._reading.join()
        os.close(self._terminal)


class PartageCli:
    """Command line for one broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    def __call__(self, *args: object, stdin: str | bytes = b"", code: int = 0) -> CommandResult:
        """Run in this process, and check the exit code."""
        runner = CliRunner(env={BOOTSTRAP_VARIABLE: self.bootstrap_servers})
        result = runner.invoke(app, [str(arg) for arg in args], input=stdin, prog_name="partage")
        out = result.stdout_bytes.decode("utf-8", "surrogateescape")
        ran = CommandResult(result.exit_code, out, result.stderr)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert ran.code == code, ran
        return ran

    def fails(self, *args: object, stdin: str = "", code: int = 1) -> str:
        """Run a failing command. Return its error line, and check that stdout is empty."""
        ran = self(*args, stdin=stdin, code=code)
        assert not ran.out
        lines = ran.err.splitlines()
        assert len(lines) == 1, lines
        assert lines[0].startswith("error: ")
        return lines[0].removeprefix("error: ")

    def lines(self, topic: str, *options: object) -> list[str]:
        """Return the values of a topic, sorted."""
        return sorted(self("consume", "-t", topic, "-e", *options).lines)

    def start(self, *args: str, **options: Any) -> subprocess.Popen[str]:
        """Start a process with pipes."""
        return subprocess.Popen(
            [sys.executable, "-m", "partage", *args],
            env=self.env,
            text=True,
            stdin=options.pop("stdin", subprocess.PIPE),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )

    @contextmanager
    def drawing(self, *args: str) -> Iterator[tuple[subprocess.Popen[str], TerminalCapture]]:
        """Start a process in a new session, with a terminal as its stderr."""
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-m", "partage", *args],
            env={**self.env, "TERM": "xterm", "COLUMNS": "100"},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=theirs,
            start_new_session=True,
        ) as process:
            os.close(theirs)
            drawn = TerminalCapture(ours)
            yield process, drawn
        drawn.end()

    def dialogue(
        self, args: Sequence[str], answer: str, *, stderr: int | None = None
    ) -> tuple[int, str]:
        """Run with a terminal, and type an answer to the first question. Return code and output."""
        ours, theirs = pty.openpty()
        os.write(ours, answer.encode())
        with subprocess.Popen(
            [sys.executable, "-m", "partage", *args],
            env={**self.env, "TERM": "xterm", "COLUMNS": "100"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs if stderr is None else stderr,
        ) as process:
            os.close(theirs)
            shown = TerminalCapture(ours)
            code = process.wait(60)
        shown.end()
        return code, shown.text.replace("\r\n", "\n")

    def shell(self, line: str, timeout_s: float = 20) -> CommandResult:
        """Run a shell line with ``partage`` on the path."""
        path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {line}"],
            env={**self.env, "PATH": path},
            text=True,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, BOOTSTRAP_VARIABLE: self.bootstrap_servers}


def records(values: Sequence[str]) -> str:
    """Return lines for ``produce``."""
    return "".join(f"{value}\n" for value in values)
