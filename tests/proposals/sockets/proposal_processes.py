"""Coordinators and members of proposals as child processes that tests kill."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Condition, Thread
from typing import IO, Any

from confluent_kafka import Producer

from partage.testing import ThreadedBroker

_PATIENCE_S = 45.0
_READS = re.compile(r"^(\S*) reads (.*) in generation (-?\d+)$")


class ProposalProcess:
    """A ``partage proposal`` command."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "partage", "proposal", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.stdout: IO[str] = self.process.stdout
        self.stderr: IO[str] = self.process.stderr

    def stop(self) -> None:
        """Stop the process, as a machine that is suspended."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a stopped process."""
        self.process.send_signal(signal.SIGCONT)

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End the process with a signal; return its exit code."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)
        return self.process.wait(_PATIENCE_S)


class MemberProcess(ProposalProcess):
    """A member, with the values that it has printed and the partitions that it reads."""

    def __init__(self, changed: Condition, *arguments: object) -> None:
        super().__init__(*arguments)
        self.values: list[str] = []
        self.partitions: frozenset[str] = frozenset()
        self.generation = -1
        #: The generations in which it has read partitions, one for each change.
        self.read_generations: list[int] = []
        self.errors: list[str] = []
        self._changed = changed
        self._threads = [
            Thread(target=self._follow, args=(self.stdout, self._take_record)),
            Thread(target=self._follow, args=(self.stderr, self._take_note)),
        ]
        for thread in self._threads:
            thread.start()

    def _follow(self, lines: Iterable[str], take: Any) -> None:
        for line in lines:
            with self._changed:
                take(line.rstrip("\n"))
                self._changed.notify_all()

    def _take_record(self, line: str) -> None:
        self.values.append(json.loads(line)["value"])

    def _take_note(self, line: str) -> None:
        found = _READS.match(line)
        if found is None:
            self.errors.append(line)
            return
        names = found[2]
        self.partitions = frozenset() if names == "nothing" else frozenset(names.split(", "))
        self.generation = int(found[3])
        if self.partitions:
            self.read_generations.append(self.generation)

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        code = super().end(number)
        for thread in self._threads:
            thread.join(_PATIENCE_S)
        self.stdout.close()
        self.stderr.close()
        return code


class ProposalGroup:
    """A group of one design, whose members read the topic "t" of a broker.

    Args:
        design: The first words of its commands.
        broker: The broker.
        data_dir: The directory of the coordinator's records.
        partition_count: Partitions of the topic.
        session_timeout_ms: The session timeout of the members.
    """

    def __init__(
        self,
        design: str,
        broker: ThreadedBroker,
        data_dir: Path,
        *,
        partition_count: int = 6,
        session_timeout_ms: int = 4_000,
    ) -> None:
        broker.create_topic("t", partition_count)
        self.members: list[MemberProcess] = []
        self.produced: list[str] = []
        self._partition_count = partition_count
        self._session_timeout_ms = session_timeout_ms
        self._design = design
        self._broker = broker
        self._data_dir = data_dir
        self._producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        self._changed = Condition()
        self._ended: list[MemberProcess] = []
        self._numbers = count()
        self._address = "127.0.0.1:0"
        self.coordinator = self.start_coordinator()

    def start_coordinator(self) -> ProposalProcess:
        """Start the coordinator, later ones at the address of the first."""
        self.coordinator = ProposalProcess(
            self._design,
            "coordinator",
            *("--listen", self._address),
            *("--data-dir", self._data_dir),
            *("--session-timeout-min-ms", self._session_timeout_ms),
            *("--initial-rebalance-delay-ms", 100),
        )
        self._address = self.coordinator.stdout.readline().strip()
        assert self._address, self.coordinator.stderr.read()
        return self.coordinator

    def end_coordinator(self) -> None:
        """Kill the coordinator."""
        self.coordinator.end()
        self.coordinator.stdout.close()
        self.coordinator.stderr.close()

    def start_members(self, number: int) -> None:
        """Start members."""
        self.members += [
            MemberProcess(
                self._changed,
                self._design,
                "member",
                "t",
                "--json",
                *("--group", "g"),
                *("--coordinator", self._address),
                *("--bootstrap-server", self._broker.bootstrap_servers),
                *("--session-timeout-ms", self._session_timeout_ms),
                *("--heartbeat-interval-ms", 200),
                *("--commit-interval-ms", 300),
            )
            for _ in range(number)
        ]

    def end_member(self, member: MemberProcess, number: signal.Signals = signal.SIGKILL) -> int:
        """End a member; return its exit code."""
        self.members.remove(member)
        self._ended.append(member)
        return member.end(number)

    def produce(self) -> list[str]:
        """Produce one record to each partition; return the values."""
        values = [f"v{next(self._numbers)}" for _ in range(self._partition_count)]
        for partition, value in enumerate(values):
            self._producer.produce("t", value, partition=partition)
        assert self._producer.flush(_PATIENCE_S) == 0
        self.produced += values
        return values

    def wait_until_shared(self, members: list[MemberProcess]) -> None:
        """Return when each of these members reads partitions, and each partition has one reader."""
        self._wait(
            lambda: (
                all(each.partitions for each in members)
                and sorted(p for each in members for p in each.partitions) == self._partitions
            )
        )

    def wait_until_not_reading(self, member: MemberProcess) -> None:
        """Return when this member reads no partition."""
        self._wait(lambda: not member.partitions)

    def wait_until_rejoined(self, generation: int) -> None:
        """Return when all members have joined a later generation."""
        self._wait(lambda: all(each.generation > generation for each in self.members))

    def wait_until_delivered(self) -> None:
        """Return when every produced record was printed, also by members that ended since."""
        self._wait(lambda: set(self.produced) <= {v for each in self._all for v in each.values})

    def readers(self, values: list[str]) -> list[int]:
        """Return how often live members have printed each value."""
        with self._changed:
            return [sum(each.values.count(value) for each in self.members) for value in values]

    @property
    def _partitions(self) -> list[str]:
        return [f"t-{number}" for number in range(self._partition_count)]

    @property
    def _all(self) -> list[MemberProcess]:
        return [*self.members, *self._ended]

    def _wait(self, condition: Any) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, _PATIENCE_S), [
                (each.generation, sorted(each.partitions), each.errors) for each in self._all
            ]

    def close(self) -> None:
        """Kill all processes."""
        for member in list(self.members):
            member.resume()
            self.end_member(member)
        self.end_coordinator()
