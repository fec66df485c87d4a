"""Preparation of validated batches for the end of the log."""

from __future__ import annotations

from collections.abc import Sequence

from partage.log.disk import Buffer
from partage.log.producer_state import ProducerStateManager
from partage.log.segments.aborted_index import AbortedTransaction
from partage.log.validator import ValidatedBatch, stamp_batch
from partage.wire.records.batch import (
    CRC_FROM,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_PRODUCER,
    NO_TIMESTAMP,
    PREFIX,
)
from partage.wire.records.checksum import crc32c
from partage.wire.records.transaction_marker import decode_marker


class PreparedBatches:
    """Batches prepared for the end of the log, in parallel lists with one entry per batch."""

    def __init__(self) -> None:
        self.chunks: list[Buffer] = []
        self.positions: list[int] = []  # relative to the first batch
        self.last_offsets: list[int] = []
        self.max_timestamps_ms: list[int] = []
        self.aborted: list[AbortedTransaction] = []  # by markers among the batches
        self.size = 0

    def add(self, chunks: list[Buffer], size: int, last_offset: int, time_ms: int) -> None:
        """Add a batch; ``time_ms`` is its largest timestamp."""
        self.chunks += chunks
        self.positions.append(self.size)
        self.last_offsets.append(last_offset)
        self.max_timestamps_ms.append(time_ms)
        self.size += size


def prepare_own_batch(
    payload: Buffer, base_offset: int, leader_epoch: int
) -> PreparedBatches | None:
    """Prepare a plain batch of the broker itself, in about half the time.

    Clients wait for these: for the record of a commit, or of a decision about a transaction.

    Args:
        payload: The batch.
        base_offset: Its offset.
        leader_epoch: Epoch to stamp into the batch.

    Returns:
        The batch; None unless it is one valid and plain batch: not compressed, without a producer,
        and with the times of its records.
    """
    size = len(payload)
    if size < HEADER_SIZE:
        return None
    _, length, _, magic, crc, attributes, last_delta, _, newest_ms, producer_id, _, _, _ = (
        HEADER.unpack_from(payload)
    )
    is_plain = not attributes and producer_id == NO_PRODUCER
    if not is_plain or magic != MAGIC or length + LENGTH_OVERHEAD != size:
        return None
    view = memoryview(payload)
    if crc != crc32c(view[CRC_FROM:]):
        return None
    prepared = PreparedBatches()
    prefix = PREFIX.pack(base_offset, length, leader_epoch)
    prepared.add([prefix, view[PREFIX.size :]], size, base_offset + last_delta, newest_ms)
    return prepared


def prepare_batches(
    batches: Sequence[ValidatedBatch],
    producers: ProducerStateManager,
    base_offset: int,
    leader_epoch: int,
    append_time_ms: int,
    now_ms: int,
) -> PreparedBatches:
    """Assign offsets to batches, and record them in the producer state.

    Args:
        batches: The batches, at least one.
        producers: The producers of the partition.
        base_offset: Offset of the first batch.
        leader_epoch: Epoch to stamp into the batches.
        append_time_ms: Timestamp to stamp into the batches, -1 to keep those of the producer.
        now_ms: Current time, ms since the epoch.
    """
    prepared, offset = PreparedBatches(), base_offset
    for batch in batches:
        header = batch.header
        last_offset = offset + header.last_offset_delta
        newest_ms = header.max_timestamp_ms if append_time_ms == NO_TIMESTAMP else append_time_ms
        chunks = stamp_batch(batch, offset, leader_epoch, append_time_ms)
        prepared.add(chunks, header.size, last_offset, newest_ms)
        if header.is_control:
            _record_marker(batch, producers, offset, now_ms, prepared)
        else:
            producers.record_batch(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                offset,
                last_offset,
                is_transactional=header.is_transactional,
                seen_ms=now_ms,
            )
        offset = last_offset + 1
    return prepared


def _record_marker(
    batch: ValidatedBatch,
    producers: ProducerStateManager,
    offset: int,
    now_ms: int,
    prepared: PreparedBatches,
) -> None:
    """End the transaction of a marker; ignore control batches of other types."""
    header = batch.header
    marker = decode_marker(header, batch.content)
    if marker is None:
        return
    completed = producers.record_marker(
        header.producer_id, header.producer_epoch, marker, offset, seen_ms=now_ms
    )
    if completed is not None and completed.is_aborted:
        prepared.aborted.append(AbortedTransaction.from_completed(completed))
