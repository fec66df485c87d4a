"""Reader of a group's topics, with Partage's own consumer."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Collection
from typing import BinaryIO, Final, NamedTuple

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
)

from partage.client.consumer import (
    AssignmentFailedError,
    CommitFailedError,
    MaxPollExceededError,
    OffsetAndMetadata,
    RebalanceListener,
    Record,
)
from partage.client.consumer.arguments import PartitionLike
from partage.client.errors import (
    BrokersUnreachableError,
    ClientError,
    ConnectError,
    ConnectionLostError,
    NoLeaderError,
    RequestTimeoutError,
)
from partage.console.common.client_options import GroupReaderOptions as Options
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError
from partage.console.common.output import note
from partage.console.common.signals import StopRequest
from partage.console.records.consume_loop import POLL_TIMEOUT_S, ConsumeLoop
from partage.console.records.record_formatter import RecordFormatter
from partage.model.topic_partition import TopicPartition
from partage.sync import Consumer

_PATIENCE_S: Final = 5.0
_LOOK_EVERY_S: Final = 2.0
_TROUBLES_MAX: Final = 5
_PASSING: Final = (
    BrokersUnreachableError,
    ConnectError,
    ConnectionLostError,
    NoLeaderError,
    RequestTimeoutError,
)


class MessageAdapter(NamedTuple):
    """Adapter that gives a Partage record the interface of a librdkafka message."""

    record: Record

    def topic(self) -> str:
        return self.record.topic

    def partition(self) -> int:
        return self.record.partition

    def offset(self) -> int:
        return self.record.offset

    def key(self) -> bytes | None:
        key: bytes | None = self.record.key  # No deserializer is set.
        return key

    def value(self) -> bytes | None:
        value: bytes | None = self.record.value
        return value

    def timestamp(self) -> tuple[int, int]:
        if self.record.timestamp < 0:
            return TIMESTAMP_NOT_AVAILABLE, -1
        kinds = (TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME)
        return kinds[self.record.timestamp_type], self.record.timestamp

    def headers(self) -> list[tuple[str, bytes | None]]:
        return list(self.record.headers)


class GroupReader(ConsumeLoop, RebalanceListener):
    """Reads topics as a member of a group.

    Commits only offsets of records that were written, so that a record that was not printed is read
    again.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        options: Options,
        topics: list[str],
        show: RecordFormatter,
        out: BinaryIO,
        outage_ms: int,
    ) -> None:
        ConsumeLoop.__init__(self, cluster, out, outage_ms)
        _show_log(cluster.verbose)
        self._show = show
        self._commit_every_s = options.commit_every_s
        self._consumer: Consumer = options.consumer()
        self._is_assigned = False
        # Offsets to commit: after the records that were written.
        self._written: dict[TopicPartition, int] = {}
        self._committed_at = self._looked_at = time.monotonic()
        self._joining_since = self._assigned_at = time.monotonic()
        self._is_idle = False
        self._told_of_waiting = False
        self._troubles = 0  # Number of errors since the last record.
        self._consumer.subscribe(topics, self)

    # Rebalance callbacks.

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._is_assigned = True
        self._assigned_at = time.monotonic()
        if self.cluster.verbose:
            note(f"assigned {_listed(partitions)}")

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._commit()
        self._gone(partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Forget offsets of these partitions: their next owner commits."""
        for partition in partitions:
            self._written.pop(partition, None)
        self._gone(partitions)

    def _gone(self, partitions: Collection[TopicPartition]) -> None:
        self._is_assigned = bool(self._consumer.assignment() - set(partitions))
        self._joining_since = time.monotonic()
        if self.cluster.verbose:
            note(f"released {_listed(partitions)}")

    def poll(self, records_max: int) -> int:
        records = self._polled(records_max)
        self._is_idle = not records
        if records:
            self._troubles = 0
            self.write(b"".join([self._show(MessageAdapter(record)) for record in records]))
        for record in records:
            self._written[TopicPartition(record.topic, record.partition)] = record.offset + 1
            self.bytes += len(record.value or b"") + len(record.key or b"")
        self.records += len(records)
        now = time.monotonic()
        if self._commit_every_s is not None and now - self._committed_at >= self._commit_every_s:
            self._committed_at = now
            self._commit()
        return len(records)

    def _polled(self, records_max: int) -> list[Record]:
        try:
            return list(self._consumer.poll(round(POLL_TIMEOUT_S * 1000), max_records=records_max))
        except (AssignmentFailedError, MaxPollExceededError) as error:  # The consumer retries.
            note(f"{type(error).__name__}: {error}")
        except _PASSING as error:
            self._troubles += 1
            self._looked_at = 0.0
            if self._troubles > _TROUBLES_MAX:  # Meanwhile librdkafka could reach the cluster.
                raise CommandError(str(error)) from error
        except ClientError as error:
            raise CommandError(str(error)) from error
        return []

    def _commit(self) -> None:
        """Commit offsets of written records.

        After a failed commit, the next owner reads these records again.
        """
        if self._commit_every_s is None or not self._written:
            return
        owned = self._consumer.assignment()
        offsets: dict[PartitionLike, int | OffsetAndMetadata] = {
            p: offset for p, offset in self._written.items() if p in owned
        }
        try:
            self._consumer.commit(offsets)
        except (CommitFailedError, ClientError) as error:
            if self.cluster.verbose:
                note(f"commit failed: {error}")
        else:
            self._written.clear()

    def is_at_end(self) -> bool:
        if not self._is_assigned or not self._is_idle:
            return False
        positions, owned = self._consumer.positions(), self._consumer.assignment()
        if not owned and time.monotonic() - self._assigned_at < _PATIENCE_S:
            return False  # Other members may have to revoke our partitions first.
        try:
            ends = self._consumer.end_offsets(owned)
        except ClientError:
            return False
        return all(positions.get(partition, -1) >= end for partition, end in ends.items())

    def check_connection(self, stop: StopRequest) -> None:
        now = time.monotonic()
        is_late = not self._is_assigned and now - self._joining_since > _PATIENCE_S
        if is_late and not self._told_of_waiting:
            # A long rebalance may wait for another member; say that this process is not stuck.
            self._told_of_waiting = True
            note("waiting for the group to assign partitions; Ctrl-C stops")
        if self._is_idle and now - self._looked_at > _LOOK_EVERY_S:
            self.wait_for_cluster(lambda s: self.cluster.admin.list_topics(timeout=s), stop)
            self._looked_at = time.monotonic()

    def close(self) -> None:
        """Commit offsets and leave the group.

        If the group is unreachable, the session timeout removes the member.
        """
        try:
            self._commit()
        finally:
            with contextlib.suppress(ClientError):
                self._consumer.close(self.cluster.timeout_ms)


def _show_log(is_wanted: bool) -> None:
    """Send the client's log to stderr, or discard it."""
    log = logging.getLogger("partage.client")
    log.propagate = False
    log.handlers = [logging.StreamHandler(sys.stderr) if is_wanted else logging.NullHandler()]
    log.setLevel(logging.INFO)


def _listed(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(f"{each.topic}-{each.partition}" for each in sorted(partitions)) or "nothing"
