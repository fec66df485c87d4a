"""Writes the markers of decided transactions into local partitions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from partage.broker.clock import Clock
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.partition import Partition
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.model.printable import printable
from partage.model.topic_partition import TopicPartition
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.transactions.outcome import MarkersToWrite

log = logging.getLogger(__name__)

_RETRY_AFTER_S: Final = 0.1
_RETRY_AFTER_MAX_S: Final = 5.0
_MARKERS_PER_TURN: Final = 128
#: A single broker is the only coordinator that its partitions ever have.
COORDINATOR_EPOCH: Final = 0
#: The leader has a later marker of the producer, or one of a later coordinator.
_OVERTAKEN: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)


class OffsetMarkers(Protocol):
    """The part of the group coordinator that ends transactions with offsets."""

    def complete_transaction(
        self,
        shard: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        is_commit: bool,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Append the marker to a shard; call ``done`` when it is durable, or with an error."""


class MarkerOrder(Protocol):
    """An order of markers, as the writer sees it."""

    markers: MarkersToWrite

    @property
    def is_current(self) -> bool:
        """False if the shard was discarded since: it will order the markers again."""

    def on_written(self, partition: TopicPartition) -> None:
        """Handle a durable marker, or a partition that no longer exists."""


class MarkerWriter:
    """Writes each marker until it is durable or its partition no longer exists.

    Args:
        log_manager: the broker's partitions.
        clock: the broker's clock.
        offset_markers: writes the markers of ``__consumer_offsets``.
    """

    def __init__(
        self, log_manager: LogManager, clock: Clock, offset_markers: OffsetMarkers
    ) -> None:
        self._log_manager = log_manager
        self._clock = clock
        self._offset_markers = offset_markers
        self._loop = asyncio.get_running_loop()
        self._holds: list[Callable[[TopicPartition], bool]] = []
        self._held: list[_Marker] = []

    # For tests that inject faults.

    def hold(self, is_held: Callable[[TopicPartition], bool]) -> None:
        """Hold the markers of some partitions, until `release` is called with the same function."""
        self._holds.append(is_held)

    def release(self, is_held: Callable[[TopicPartition], bool]) -> None:
        """Write the markers that `hold` has held."""
        self._holds.remove(is_held)
        held, self._held = self._held, []
        for marker in held:
            marker.write()

    def keep(self, marker: _Marker) -> bool:
        """Keep a marker back if its partition's markers are held; return True then."""
        if not any(is_held(marker.partition) for is_held in self._holds):
            return False
        self._held.append(marker)
        return True

    # Markers.

    def write(self, order: MarkerOrder, begin: int = 0) -> None:
        """Write the markers of an order, at most as many as fit into one turn of the loop."""
        end = begin + _MARKERS_PER_TURN
        for partition in order.markers.partitions[begin:end]:
            _Marker(self, order, partition).write()
        if end < len(order.markers.partitions):
            self._loop.call_soon(self.write, order, end)

    def append(
        self, markers: MarkersToWrite, where: TopicPartition, done: Callable[[ErrorCode], None]
    ) -> None:
        """Append one marker; ``done`` gets UNKNOWN_TOPIC_OR_PARTITION for a deleted partition."""
        partition = self._log_manager.partition(*where)
        if partition is None:
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        # An administrator may have written a marker with another epoch (WriteTxnMarkers).
        epoch = max(
            COORDINATOR_EPOCH, partition.log.producer_state.coordinator_epoch(markers.producer_id)
        )
        if where.topic == OFFSETS_TOPIC:
            # The group coordinator appends without checks; a repeated marker must not reach it.
            refusal = partition.log.producer_state.check_marker(
                markers.producer_id, markers.epoch, epoch, markers.version
            )
            if refusal is not None:
                done(_refusal_error(partition, refusal))
                return
            self._offset_markers.complete_transaction(
                where.partition,
                markers.producer_id,
                markers.epoch,
                epoch,
                is_commit=markers.is_commit,
                done=done,
            )
            return
        outcome = partition.append_marker(
            markers.producer_id,
            markers.epoch,
            epoch,
            is_commit=markers.is_commit,
            transaction_version=markers.version,
            at_ms=self._clock.wall_ms(),
            done=done,
        )
        if isinstance(outcome, Refusal):
            done(_refusal_error(partition, outcome))

    def retry(self, delay_s: float, attempt: Callable[[], None]) -> None:
        """Call a function after a delay."""
        self._loop.call_later(delay_s, attempt)


class _Marker:
    """One marker on its way to its partition."""

    def __init__(self, writer: MarkerWriter, order: MarkerOrder, partition: TopicPartition) -> None:
        self._writer = writer
        self._order = order
        self.partition = partition
        self._delay_s = _RETRY_AFTER_S

    def write(self) -> None:
        """Append the marker, unless the order is void."""
        if self._order.is_current and not self._writer.keep(self):
            self._writer.append(self._order.markers, self.partition, self._on_result)

    def _on_result(self, error: ErrorCode) -> None:
        if not self._order.is_current:
            return
        if error in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *_OVERTAKEN):
            if error:
                self._log(logging.INFO, "is not needed", error)
            self._order.on_written(self.partition)
            return
        self._log(logging.WARNING, "failed and will be repeated", error)
        self._writer.retry(self._delay_s, self.write)
        self._delay_s = min(2 * self._delay_s, _RETRY_AFTER_MAX_S)

    def _log(self, level: int, result: str, error: ErrorCode) -> None:
        log.log(
            level,
            "transaction marker %s: transactional_id=%s partition=%s error=%s",
            result,
            printable(self._order.markers.transactional_id),
            self.partition,
            error.name,
        )


def _refusal_error(partition: Partition, refusal: Refusal) -> ErrorCode:
    """Return the error of a refused marker.

    A later marker that overtook this one counts only when it is durable.
    """
    is_durable = partition.log.high_watermark == partition.log.end_offset
    if refusal.code in _OVERTAKEN and not is_durable:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return refusal.code
