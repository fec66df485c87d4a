"""The loop that reads and prints records until a limit, the end, or a signal."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import BinaryIO, Final, NamedTuple

from confluent_kafka import KafkaException

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.output import discard_stdout, note
from partage.console.common.signals import StopRequest

POLL_TIMEOUT_S: Final = 0.1
BATCH_RECORDS_MAX: Final = 500


class ReadLimits(NamedTuple):
    """Limits that end the loop; None disables a limit."""

    messages_max: int | None = None
    idle_ms: int | None = None
    at_end: bool = False


class OutputClosedError(Exception):
    """Raised when the reader of stdout has closed it."""


class ConsumeLoop(ABC):
    """Base of the readers: polls records and prints them."""

    def __init__(self, cluster: ClusterClient, out: BinaryIO) -> None:
        self.records = 0
        self.bytes = 0
        self.cluster = cluster
        self._out = out

    def run(self, limits: ReadLimits, stop: StopRequest) -> str | None:
        """Read until a limit or a signal.

        Returns:
            The reason for the summary line; None for a normal end.

        Raises:
            CommandError: An error that retries cannot fix.
        """
        last_record = time.monotonic()
        while not stop:
            left = None if limits.messages_max is None else limits.messages_max - self.records
            if left is not None and left <= 0:
                return None
            try:
                taken = self.poll(
                    BATCH_RECORDS_MAX if left is None else min(BATCH_RECORDS_MAX, left)
                )
            except OutputClosedError:
                return "output closed by its reader"
            now = time.monotonic()
            if taken:
                last_record = now
            elif limits.idle_ms is not None and now - last_record >= limits.idle_ms / 1000:
                return f"no record for {limits.idle_ms} ms"
            if limits.at_end and self.is_at_end():
                return None
            self.check_connection(stop)
        return "stopped"

    @abstractmethod
    def poll(self, records_max: int) -> int:
        """Wait for records and print them. Return the number of records."""

    @abstractmethod
    def is_at_end(self) -> bool:
        """True if all partitions were read to the end."""

    @abstractmethod
    def check_connection(self, stop: StopRequest) -> None:
        """Wait for a lost cluster to come back, at most for the command's timeout."""

    @abstractmethod
    def close(self) -> None:
        """Close the consumer."""

    def write(self, text: bytes) -> None:
        """Write to stdout and flush.

        Raises:
            OutputClosedError: The reader of stdout has closed it.
        """
        if not text:
            return
        try:
            self._out.write(text)
            self._out.flush()
        except BrokenPipeError:
            discard_stdout()
            raise OutputClosedError from None

    def wait_for_cluster(self, look: Callable[[float], object], stop: StopRequest) -> None:
        """Call ``look`` with a timeout in seconds until it succeeds.

        Raises:
            CommandError: The cluster did not respond within the command's timeout.
        """
        deadline = time.monotonic() + self.cluster.timeout_s
        is_reported = False
        while not stop:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self.cluster.unreachable_error()
            try:
                look(min(left, 0.5))
            except KafkaException:
                if not is_reported:
                    note(f"lost connection to {self.cluster.bootstrap_servers}; reconnecting")
                    is_reported = True
            else:
                self.cluster.recent_errors.clear()
                return
