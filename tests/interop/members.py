"""Peers as processes: start, read events, stop, kill."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Self

from interop import client_kinds
from interop.checker import Event, History, Partition
from interop.committed_offsets import committed_offsets
from interop.record_sets import Record, ends
from polled_conditions import PATIENCE_S

#: Sessions of members that no test kills: none expires while the machine is busy or a broker
#: restarts. The controller of Apache Kafka fences a killed broker for 9 s.
SESSION_MS = 60_000
#: Sessions of members that a test kills: the minimum of both brokers.
SHORT_SESSION_MS = 6_000

_names = itertools.count()


def fresh_name(what: str) -> str:
    """Return an unused name for a topic or a group."""
    return f"{what}-{os.getpid()}-{next(_names)}"


class PeerFailedError(Exception):
    """A peer ended with an error, or missed a deadline."""


class Peer:
    """A process that prints events. It has a separate process group, so that all of it can be
    killed.
    """

    def __init__(self, kind: str, action: str, name: str, **options: object) -> None:
        self.kind = kind
        self.history = History(name, reports_commits=kind in client_kinds.REPORTS_COMMITS)
        words = [
            word
            for key, value in options.items()
            if value is not None
            for word in (f"--{key.replace('_', '-')}", str(value))
        ]
        # Closed in close().
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            client_kinds.command(kind, action, words),
            env=client_kinds.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __str__(self) -> str:
        return f"{self.history.name} ({self.kind})"

    @property
    def events(self) -> list[Event]:
        return self.history.events

    def of(self, event: str) -> list[Event]:
        """Return the events of one type so far."""
        return [each for each in list(self.events) if each["event"] == event]

    def terminate(self) -> None:
        """Request an orderly end with SIGTERM."""
        self.process.terminate()

    def kill(self) -> None:
        """Send SIGKILL to the process group and record the time."""
        self.history.killed_at = time.time()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.wait()

    def wait(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait for the end of the process and of its output."""
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise PeerFailedError(f"{self} does not end:\n{self.diagnosis()}") from None
        self._listener.join(PATIENCE_S)

    def check_orderly_end(self) -> None:
        """Raise `PeerFailedError` unless it ended by itself, with ``closed`` and status 0."""
        self.wait()
        if self.process.returncode != 0 or not self.of("closed"):
            status = self.process.returncode
            raise PeerFailedError(f"{self} failed with status {status}:\n{self.diagnosis()}")

    def diagnosis(self) -> str:
        """Return its last events, without records, and its error output."""
        self._errors.seek(0)
        errors = self._errors.read().decode(errors="replace")[-3000:]
        events = [each for each in list(self.events) if each["event"] != "record"]
        return "\n".join([*map(json.dumps, events[-20:]), errors])

    def close(self) -> None:
        """Kill the process group and release all resources."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._listener.join(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                event = {"event": "log", "message": line.decode(errors="replace")}
            self.events.append(event)


class Team:
    """Several peers in one group; a context manager that stops all of them."""

    def __init__(self, bootstrap: str, topic: str, group: str | None = None) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.group = group or fresh_name("group")
        self.members: list[Peer] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.close()

    def join(self, kind: str, name: str, **options: object) -> Peer:
        """Start a consumer; ``name`` is its client id, by which range sorts."""
        settings: dict[str, Any] = {
            "bootstrap": self.bootstrap,
            "group": self.group,
            "topic": self.topic,
            "client_id": name,
            "assignor": "range",
            "commit_every": 20,
            "max": 0,
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": 500,
        }
        member = Peer(kind, "consume", name, **{**settings, **options})
        self.members.append(member)
        return member

    @property
    def running(self) -> list[Peer]:
        return [member for member in self.members if member.process.poll() is None]

    @property
    def histories(self) -> list[History]:
        return [member.history for member in self.members]

    def owners(self) -> dict[Partition, list[str]]:
        """Return the owners of each partition, from the last events of the running members."""
        owners: dict[Partition, list[str]] = {}
        for member in self.running:
            for partition in member.history.owned_now():
                owners.setdefault(partition, []).append(member.history.name)
        return owners

    def consumed(self) -> set[Record]:
        """Return all printed records: topic, partition, offset."""
        return {
            (each["topic"], each["partition"], each["offset"])
            for member in self.members
            for each in member.of("record")
        }

    def wait_until_shared(
        self, partitions: Iterable[Partition], timeout_s: float = PATIENCE_S
    ) -> None:
        """Wait until every partition has one owner and every running member has a partition."""
        wanted = set(partitions)

        def shared() -> bool:
            owners = self.owners()
            names = {name for owning in owners.values() for name in owning}
            return (
                owners.keys() == wanted
                and all(len(owning) == 1 for owning in owners.values())
                and len(names) == len(self.running)
            )

        self.wait_until(shared, "every partition has one owner", timeout_s)

    def wait_until_consumed(self, records: set[Record], timeout_s: float = PATIENCE_S) -> None:
        """Wait until all these records were printed."""
        self.wait_until(lambda: records <= self.consumed(), "every record is consumed", timeout_s)

    def wait_until_committed(self, records: set[Record], timeout_s: float = PATIENCE_S) -> None:
        """Wait until the group has committed all these records, which members do in a pause.

        Call it before several members end. If a member ends while the group rebalances, its last
        commit may be rejected, and no member remains to read the records again. The same applies to
        the successor of a killed member.
        """
        wanted = ends(records)

        def committed() -> bool:
            return committed_offsets(self.bootstrap, self.group, wanted) == wanted

        self.wait_until(committed, "every record is committed", timeout_s)

    def wait_until(self, done: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait; raise `PeerFailedError` with the diagnosis of all members after the timeout."""
        until = time.monotonic() + timeout_s
        while not done():
            for member in self.members:
                status = member.process.poll()
                if status and member.history.killed_at is None:
                    raise PeerFailedError(f"{member} ended, status {status}:\n{member.diagnosis()}")
            if time.monotonic() > until:
                stories = "\n\n".join(f"{each}:\n{each.diagnosis()}" for each in self.members)
                raise PeerFailedError(
                    f"not within {timeout_s} s: {what}\n{self.owners()}\n{stories}"
                )
            time.sleep(0.05)

    def end(self) -> None:
        """Stop all members in an orderly way, one after another, and check their exit status."""
        for member in self.running:
            member.terminate()
            member.check_orderly_end()


def produce(
    kind: str, bootstrap: str, topic: str, count: int, *, start: int = 0, acks: str = "all"
) -> set[Record]:
    """Produce keyed records with a peer; return them as acknowledged."""
    kind = client_kinds.producer(kind)
    peer = Peer(
        *(kind, "produce", f"producer-{kind}"),
        bootstrap=bootstrap,
        topic=topic,
        client_id=f"producer-{kind}",
        count=count,
        start=start,
        acks=acks,
    )
    try:
        peer.check_orderly_end()
        produced = {
            (each["topic"], each["partition"], each["offset"]) for each in peer.of("produced")
        }
    finally:
        peer.close()
    if len(produced) != count:
        raise PeerFailedError(f"{peer} reported {len(produced)} records, not {count}")
    return produced
