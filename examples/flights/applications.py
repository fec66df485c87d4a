"""Start, control and observation of the demo's applications."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from examples.flights.timeline import Owners, OwnershipTimeline

#: The directory of the package `examples`.
_ROOT: Final = Path(__file__).parents[2]
_POLL_S: Final = 0.2
_REQUEST_TIMEOUT_S: Final = 20
_LEAVE_S: Final = 60


class ApplicationError(RuntimeError):
    """Raised if an application failed, or the group did not reach a state in time."""


class Application:
    """An application: a process in a separate process group, with its children."""

    def __init__(self, name: str, arguments: list[str], log_path: Path) -> None:
        self.name = name
        self.log_path = log_path
        self.told: dict[str, dict[str, Any]] = {}
        with log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "examples.flights.application", *arguments],
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                # Ctrl-C stops only the demo, which ends the applications through stdin.
                start_new_session=True,
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def say(self, word: str) -> None:
        """Write a word to the application's stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def wait(self, within_s: float) -> None:
        """Wait for the application to end.

        Raises:
            subprocess.TimeoutExpired: It did not end in time.
        """
        self._process.wait(within_s)

    def kill(self) -> None:
        """Kill the application with its Java process (SIGKILL), like the loss of a machine."""
        with suppress(ProcessLookupError):  # All its processes have ended already.
            os.killpg(self._process.pid, signal.SIGKILL)
        self._close()

    def leave(self) -> None:
        """Close stdin and wait for the end; kill the application after a timeout."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close()

    def check(self) -> None:
        """Raise `ApplicationError` if the application failed or ended."""
        failed = self.told.get("failed")
        if failed is not None or self._process.poll() is not None:
            why = failed["why"] if failed else f"ended with code {self._process.returncode}"
            raise ApplicationError(f"{self.name}: {why}\nSee also {self.log_path}")

    def _close(self) -> None:
        self._process.wait()
        self._listener.join(_LEAVE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                break  # Killed in the middle of a line.
            told = json.loads(line)
            self.told[told.pop("event")] = told


class Applications:
    """The applications of a group; a context manager that ends them all.

    A thread polls the group for the timeline.
    """

    def __init__(self, servers: str, group: str, partitions: int, directory: Path) -> None:
        self.timeline = OwnershipTimeline()
        self._began = time.monotonic()
        self._began_at_ms = time.time_ns() // 1_000_000
        self._servers = servers
        self._group = group
        self._partitions = partitions
        self._directory = directory
        # The client may outlive the broker for a moment; it must not log that the broker is down.
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
        self._running: dict[str, Application] = {}
        self._is_over = threading.Event()
        self._owners: Owners = {}
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop_watching()
        for application in self._running.values():
            application.kill()
        self._running.clear()

    def stop_watching(self) -> None:
        """Stop polling the group."""
        self._is_over.set()
        self._watcher.join()

    def since_began_s(self, at_ms: int | None = None) -> float:
        """Return seconds since the start, for now or for a time in ms since the epoch."""
        if at_ms is None:
            return time.monotonic() - self._began
        return (at_ms - self._began_at_ms) / 1000

    def start(self, name: str, output: Path, table: Path) -> None:
        """Start an application."""
        arguments = [self._servers, self._group, name, str(output), str(table)]
        log_path = self._directory / f"{name}.log"
        self._running[name] = Application(name, arguments, log_path)

    def kill(self, name: str) -> None:
        """Kill an application."""
        self.timeline.add_event(f"{name} is killed", self.since_began_s())
        self._running.pop(name).kill()

    def finish(self, name: str, *, within_s: float) -> dict[str, Any]:
        """Let an application stop its query and write its table. Return its report."""
        application = self._running[name]
        application.check()
        application.say("finish")
        self.wait(lambda: "finished" in application.told, within_s, lambda: f"finished ({name})")
        return application.told["finished"]

    def leave(self) -> None:
        """Let all applications end."""
        for application in self._running.values():
            application.leave()
        self._running.clear()

    def wait_until_stable(self, *, within_s: float) -> Owners:
        """Wait until the group is stable with all applications and each partition has one owner."""

        def is_settled() -> bool:
            owned = sorted(p for partitions in self._owners.values() for p in partitions)
            is_all = self._owners.keys() == self._running.keys()
            return is_all and owned == list(range(self._partitions))

        self.wait(is_settled, within_s, self._instability)
        return self._owners

    def _instability(self) -> str:
        return f"become stable; partitions by owner: {self._owners or 'none'}"

    def wait(self, is_so: Callable[[], bool], within_s: float, what: Callable[[], str]) -> None:
        """Wait until a condition is true.

        Raises:
            ApplicationError: An application failed, or the time is up.
        """
        until = time.monotonic() + within_s
        while not is_so():
            for application in self._running.values():
                application.check()
            if time.monotonic() > until:
                raise ApplicationError(
                    f"timed out after {within_s:g} s: the applications have not {what()}\n"
                    f"The machine may be too busy. See also {self._directory / '*.log'}"
                )
            time.sleep(_POLL_S)

    def _watch(self) -> None:
        while not self._is_over.wait(_POLL_S):
            owners = self._look()
            if owners is not None:
                self._owners = owners
                self.timeline.add_owners(self.since_began_s(), owners)

    def _look(self) -> Owners | None:
        """Return the owners from the coordinator; None during a rebalance or after an error."""
        try:
            described = self._admin.describe_consumer_groups(
                [self._group], request_timeout=_REQUEST_TIMEOUT_S
            )[self._group].result()
        except KafkaException:
            return None
        if described.state != ConsumerGroupState.STABLE:
            return None
        return {
            member.client_id: tuple(sorted(p.partition for p in member.assignment.topic_partitions))
            for member in described.members
        }
