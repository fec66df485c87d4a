"""Writes the markers of decided transactions, and repeats those that fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from partage.broker.transactions.local_markers import MarkerDone, MarkerSink, PartitionMarker
from partage.model.errors import ErrorCode
from partage.model.printable import printable
from partage.model.topic_partition import TopicPartition
from partage.runtime.transaction_markers import is_settled
from partage.transactions.outcome import MarkersToWrite

log = logging.getLogger(__name__)

_RETRY_AFTER_S: Final = 0.1
_RETRY_AFTER_MAX_S: Final = 5.0
_MARKERS_PER_TURN: Final = 128


class MarkerOrder(Protocol):
    """An order of markers, as the writer sees it.

    ``coordinator_epoch`` is the epoch of the shard that ordered them, None on a single broker.
    """

    markers: MarkersToWrite
    coordinator_epoch: int | None

    @property
    def is_current(self) -> bool:
        """False if the shard was discarded since: it will order the markers again."""

    def on_written(self, partition: TopicPartition) -> None:
        """Handle a durable marker, or a partition that no longer exists."""


class MarkerWriter:
    """Writes each marker until it is durable or its partition no longer exists.

    Args:
        sink: appends the markers.
    """

    def __init__(self, sink: MarkerSink) -> None:
        self._sink = sink
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

    def append(self, order: MarkerOrder, where: TopicPartition, done: MarkerDone) -> None:
        """Append one marker of an order."""
        markers = order.markers
        marker = PartitionMarker(
            markers.producer_id,
            markers.epoch,
            order.coordinator_epoch,
            markers.is_commit,
            markers.version,
        )
        self._sink.append(marker, where, done)

    def close(self) -> None:
        """Stop sending markers to other brokers."""
        self._sink.close()

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
        self._attempt = 0

    def write(self) -> None:
        """Append the marker, unless the order is void."""
        if not self._order.is_current or self._writer.keep(self):
            return
        self._attempt += 1
        done = partial(self._on_result, self._attempt)
        try:
            self._writer.append(self._order, self.partition, done)
        except Exception:  # a bug; without this marker the transaction would never end
            log.exception("append of a transaction marker failed: partition=%s", self.partition)
            done(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _on_result(self, attempt: int, error: ErrorCode) -> None:
        if attempt != self._attempt or not self._order.is_current:
            return
        self._attempt += 1  # a second result of the same attempt would retry twice
        if is_settled(error):
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
