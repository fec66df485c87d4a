"""The loop that reads and prints records until a limit, the end, or a signal."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import BinaryIO, Final, NamedTuple

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.output import discard_stdout
from partage.console.common.signals import StopRequest
from partage.console.records.cluster_wait import wait_for_cluster

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
    """Base of the readers: polls records and prints them.

    Args:
        cluster: The cluster.
        out: The output.
        outage_ms: Longest wait for a cluster that is lost.
    """

    def __init__(self, cluster: ClusterClient, out: BinaryIO, outage_ms: int) -> None:
        self._outage_ms = outage_ms
        self._idle_ms: int | None = None
        self._last_record = time.monotonic()
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
        self._idle_ms = limits.idle_ms
        self._last_record = time.monotonic()
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
                self._last_record = now
            elif limits.idle_ms is not None and now - self._last_record >= limits.idle_ms / 1000:
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
        """Wait for a lost cluster to come back, at most for the longest outage."""

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
            CommandError: The cluster did not respond within the longest outage, or within the time
                without a record.
        """
        limit_ms = self._outage_ms
        if self._idle_ms is not None:
            idle_s = time.monotonic() - self._last_record
            limit_ms = min(limit_ms, max(1, self._idle_ms - round(idle_s * 1000)))
        wait_for_cluster(self.cluster, look, stop, limit_ms=limit_ms)
