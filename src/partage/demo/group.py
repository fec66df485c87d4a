"""The group of three consumers: who owns what, who is killed, what was read."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, NamedTuple, Self

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from partage.demo.coverage import Coverage

Owners = dict[str, tuple[int, ...]]

_LOOK_S: Final = 0.05
_REQUEST_TIMEOUT_S: Final = 20


class GroupTrouble(RuntimeError):  # noqa: N818 - named after what it is
    """The group did not do what it should have done, in time."""


class Rebalance(NamedTuple):
    """How a member's loss went: seconds until it was noticed, and from then until all is owned."""

    noticed_s: float
    settled_s: float
    before: Owners
    after: Owners


class Group:
    """Members of one group, each a process; a context manager that ends them all."""

    def __init__(
        self,
        servers: str,
        group: str,
        topic: str,
        partitions: int,
        session_timeout_ms: int = 6_000,
    ) -> None:
        self.coverage = Coverage()
        self.refused = 0
        self._command = [sys.executable, "-m", "partage.demo.member", servers, group, topic]
        self._command.append(str(session_timeout_ms))
        self._group = group
        self._topic = topic
        self._partitions = partitions
        # It may outlive the broker by a moment, and need not say that it is gone.
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
        self._members: dict[str, subprocess.Popen[str]] = {}
        self._listeners: list[threading.Thread] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in list(self._members):
            self.kill(name)
        self._hear_out()

    def start(self, name: str) -> None:
        """A member more."""
        member = subprocess.Popen(
            [*self._command, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for this process; its end reaches them by stdin
        )
        self._members[name] = member
        listener = threading.Thread(target=self._listen, args=(member,), daemon=True)
        listener.start()
        self._listeners.append(listener)

    def kill(self, name: str) -> None:
        """End a member at once, as a crash would (SIGKILL)."""
        member = self._members.pop(name)
        member.kill()
        _close_input(member)
        member.wait()

    def leave(self) -> None:
        """Let all members leave, and hear them out."""
        for member in self._members.values():
            _close_input(member)
        for member in self._members.values():
            member.wait(_REQUEST_TIMEOUT_S)
        self._members.clear()
        self._hear_out()

    def owners(self) -> Owners | None:
        """Each member's partitions as the coordinator has them; None while it rebalances."""
        described = self._admin.describe_consumer_groups(
            [self._group], request_timeout=_REQUEST_TIMEOUT_S
        )[self._group].result()
        if described.state != ConsumerGroupState.STABLE:
            return None
        return {
            member.client_id: tuple(sorted(p.partition for p in member.assignment.topic_partitions))
            for member in described.members
        }

    def settle(self, *, within_s: float) -> Owners:
        """Wait until the group is stable with all its members and every partition owned once.

        Raises:
            GroupTrouble: that did not happen in time.
        """
        owners: Owners | None = None

        def is_settled() -> bool:
            nonlocal owners
            owners = self.owners()
            if owners is None or owners.keys() != self._members.keys():
                return False
            owned = sorted(p for partitions in owners.values() for p in partitions)
            return owned == list(range(self._partitions))

        self._wait(is_settled, within_s, lambda: f"settled; the owners are {owners}")
        assert owners is not None
        return owners

    def watch(self, before: Owners, *, within_s: float) -> Rebalance:
        """Wait for the rebalance that has to come now. Raises `GroupTrouble`."""
        began = time.monotonic()
        # A settled group of other members shows that it came and went between two looks.
        self._wait(lambda: self.owners() != before, within_s, lambda: "noticed that one is gone")
        noticed = time.monotonic()
        after = self.settle(within_s=within_s)
        return Rebalance(noticed - began, time.monotonic() - noticed, before, after)

    def committed(self) -> dict[int, int]:
        """The group's offsets by partition; 0 where none was committed."""
        wanted = [TopicPartition(self._topic, p) for p in range(self._partitions)]
        found = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self._group, wanted)], request_timeout=_REQUEST_TIMEOUT_S
        )[self._group].result()
        return {p.partition: max(p.offset, 0) for p in found.topic_partitions}

    def drain(self, ends: dict[int, int], *, within_s: float) -> None:
        """Wait until everything is read and committed. Raises `GroupTrouble`."""
        self._wait(
            lambda: self.committed() == ends,
            within_s,
            lambda: f"read to the end; committed is {self.committed()} of {ends}",
        )

    def _wait(self, is_so: Callable[[], bool], within_s: float, what: Callable[[], str]) -> None:
        until = time.monotonic() + within_s
        while not is_so():
            for name, member in list(self._members.items()):
                if member.poll() is not None:
                    raise GroupTrouble(f"{name} ended with code {member.returncode}")
            if time.monotonic() > until:
                raise GroupTrouble(f"after {within_s:g} s the group has not {what()}")
            time.sleep(_LOOK_S)

    def _listen(self, member: subprocess.Popen[str]) -> None:
        assert member.stdout is not None
        with member.stdout:
            for line in member.stdout:
                if not line.endswith("\n"):
                    break  # killed in the middle of a line: it counts as not told
                told = json.loads(line)
                with self._lock:
                    if told["event"] == "read":
                        for partition, first, last in told["runs"]:
                            self.coverage.add(partition, first, last)
                    self.refused += told["event"] == "refused"

    def _hear_out(self) -> None:
        for listener in self._listeners:
            listener.join()
        self._listeners.clear()


def _close_input(member: subprocess.Popen[str]) -> None:
    """Which a member takes as the word to leave."""
    assert member.stdin is not None
    member.stdin.close()
