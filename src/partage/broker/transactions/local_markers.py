"""Appends markers to the partitions and the group shards of this broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from partage.broker.clock import Clock
from partage.broker.topics.log_manager import LogManager
from partage.log.producer_state import ProducerStateManager
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.runtime.transaction_markers import COORDINATOR_EPOCH, is_settled
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC

log = logging.getLogger(__name__)

MarkerDone = Callable[[ErrorCode], None]


class PartitionMarker(NamedTuple):
    """A marker for one partition.

    ``coordinator_epoch`` is None on a single broker, which is the only coordinator.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    is_commit: bool
    version: int  # of the transaction


class MarkerSink(Protocol):
    """Appends markers to partitions."""

    def append(self, marker: PartitionMarker, where: TopicPartition, done: MarkerDone) -> None:
        """Append one marker.

        Args:
            marker: The marker.
            where: The partition.
            done: Called once, maybe before this method returns: with NONE when the marker is
                durable, or with an error. UNKNOWN_TOPIC_OR_PARTITION means that the partition was
                deleted.
        """

    def close(self) -> None:
        """Stop; markers that are on their way get no result."""


class GroupShard(Protocol):
    """The host of a group shard, as far as markers need it."""

    @property
    def is_loaded(self) -> bool:
        """True if the shard is loaded."""

    @property
    def producer_state(self) -> ProducerStateManager:
        """The producers of transactional offsets."""

    def call_when_durable(self, done: Callable[[bool], None]) -> None:
        """Report when all current state is durable."""

    def complete_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        is_commit: bool,
        done: MarkerDone,
    ) -> None:
        """Append the marker; call ``done`` when it is durable, or with an error."""


class LocalMarkers:
    """Implements `MarkerSink` for this broker.

    Args:
        log_manager: the broker's partitions.
        clock: the broker's clock.
        group_shards: the hosts of the partitions of ``__consumer_offsets``.
    """

    def __init__(
        self, log_manager: LogManager, clock: Clock, group_shards: Sequence[GroupShard]
    ) -> None:
        self._log_manager = log_manager
        self._clock = clock
        self._group_shards = group_shards

    def append(self, marker: PartitionMarker, where: TopicPartition, done: MarkerDone) -> None:
        """Append one marker to a partition or a group shard of this broker."""
        if where.topic == OFFSETS_TOPIC:
            self._append_to_group_shard(marker, where.partition, done)
            return
        partition = self._log_manager.partition(*where)
        if partition is None:
            done(self._missing_partition_error(where))
            return
        outcome = partition.append_marker(
            marker.producer_id,
            marker.producer_epoch,
            _coordinator_epoch(marker, partition.log.producer_state),
            is_commit=marker.is_commit,
            transaction_version=marker.version,
            at_ms=self._clock.wall_ms(),
            done=done,
        )
        if not isinstance(outcome, Refusal):
            return
        code = outcome.code
        _log_refusal(code, marker, where)
        if is_settled(code):
            # A later marker overtook this one. It counts only when it is durable.
            partition.call_when_durable(lambda error: done(error or code))
        else:
            done(code)

    def close(self) -> None:
        """Do nothing: the partitions and shards are closed by the broker."""

    def _missing_partition_error(self, where: TopicPartition) -> ErrorCode:
        if self._log_manager.is_being_deleted(where.topic):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER  # a crash now would bring the topic back
        return self._log_manager.missing_partition_error(*where)

    def _append_to_group_shard(self, marker: PartitionMarker, index: int, done: MarkerDone) -> None:
        if not 0 <= index < len(self._group_shards):
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        shard = self._group_shards[index]
        if not shard.is_loaded:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        # The group coordinator appends without checks; a repeated marker must not reach it.
        producers = shard.producer_state
        epoch = _coordinator_epoch(marker, producers)
        refusal = producers.check_marker(
            marker.producer_id, marker.producer_epoch, epoch, marker.version
        )
        if refusal is None:
            shard.complete_transaction(
                marker.producer_id,
                marker.producer_epoch,
                epoch,
                is_commit=marker.is_commit,
                done=lambda error: done(_shown_error(error)),
            )
            return
        code = refusal.code
        _log_refusal(code, marker, TopicPartition(OFFSETS_TOPIC, index))
        shard.call_when_durable(
            lambda is_durable: done(code if is_durable else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        )


def _log_refusal(code: ErrorCode, marker: PartitionMarker, where: TopicPartition) -> None:
    if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
        log.warning(
            "marker of a former transaction coordinator refused: partition=%s producer_id=%d "
            "producer_epoch=%d coordinator_epoch=%s",
            where,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
        )


def _coordinator_epoch(marker: PartitionMarker, producers: ProducerStateManager) -> int:
    """Return the coordinator epoch of a marker.

    On a single broker, an administrator may have written a marker with another epoch
    (WriteTxnMarkers).
    """
    if marker.coordinator_epoch is not None:
        return marker.coordinator_epoch
    return max(COORDINATOR_EPOCH, producers.coordinator_epoch(marker.producer_id))


def _shown_error(error: ErrorCode) -> ErrorCode:
    """Return the error of the group coordinator as Kafka reports it for a marker."""
    unavailable = (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    )
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if error in unavailable else error
