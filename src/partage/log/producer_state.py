"""State of a partition's idempotent producers (KIP-98, KIP-360).

A producer numbers its records. The last five batches of each producer are kept. A repeated batch is
answered with its first offsets, and a batch that leaves a gap is refused. An unknown producer may
start with any sequence, because its earlier records may have been removed.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
from crc32c import crc32c

from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.wire.records.batch import NO_PRODUCER, BatchHeader

BATCHES_KEPT: Final = 5
PRODUCER_EXPIRATION_MS: Final = 86_400_000  # producer.id.expiration.ms
SEQUENCE_MAX: Final = 2**31 - 1

# CRC-32C of the rest, length of the body, version, producer count.
_FILE: Final = struct.Struct(">IIHI")
_PRODUCER: Final = struct.Struct(">qhqB")  # id, epoch, last append time, batch count
_BATCH: Final = struct.Struct(">iiqq")  # first and last sequence, first and last offset
_VERSION: Final = 1


class SequencedBatch(msgspec.Struct, frozen=True):
    """One of a producer's last batches."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


class DuplicateBatch(msgspec.Struct, frozen=True):
    """The offsets of a batch that was appended before."""

    base_offset: int
    last_offset: int


class _Producer:
    """The state of one producer: epoch, time of its last append, and last batches, oldest first."""

    __slots__ = ("batches", "epoch", "seen_ms")

    def __init__(self, epoch: int, seen_ms: int, batches: Iterable[SequencedBatch] = ()) -> None:
        self.epoch = epoch
        self.seen_ms = seen_ms
        self.batches = deque(batches, BATCHES_KEPT)


class ProducerSummary(NamedTuple):
    """A producer and its last append. ``last_sequence`` is -1 if no batch with one is known."""

    producer_id: int
    epoch: int
    last_sequence: int
    seen_ms: int


class ProducerStateManager:
    """The producers of one partition. Times are ms since the epoch."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}

    def summaries(self) -> list[ProducerSummary]:
        """Return the known producers."""
        return [
            ProducerSummary(
                producer_id,
                its.epoch,
                its.batches[-1].last_sequence if its.batches else -1,
                its.seen_ms,
            )
            for producer_id, its in self._producers.items()
        ]

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, batches: Sequence[BatchHeader]) -> DuplicateBatch | Refusal | None:
        """Check whether batches may be appended in this order.

        Does not change the state: call `record_batch` after the append.

        Returns:
            None if they may be appended, the offsets of the first duplicate, or a `Refusal` with
            OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_PRODUCER_EPOCH.
        """
        last_sequences: dict[int, tuple[int, int]] = {}
        for batch in batches:
            if batch.producer_id == NO_PRODUCER:
                continue
            if duplicate := self._duplicate(batch):
                return duplicate
            last = last_sequences.get(batch.producer_id) or self._last_sequence(batch.producer_id)
            if last and (refusal := _check_sequence(batch, *last)):
                return refusal
            last_sequences[batch.producer_id] = batch.producer_epoch, _last_sequence_of(batch)
        return None

    def record_batch(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        base_offset: int,
        last_offset: int,
        *,
        is_control: bool,
        seen_ms: int,
    ) -> None:
        """Record an appended batch; ignore one without a producer id."""
        if producer_id == NO_PRODUCER:
            return
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch != epoch:
            producer = self._producers[producer_id] = _Producer(epoch, seen_ms)
        producer.seen_ms = seen_ms
        if not is_control:
            last_sequence = _sequence_after(base_sequence, last_offset - base_offset)
            batch = SequencedBatch(base_sequence, last_sequence, base_offset, last_offset)
            producer.batches.append(batch)

    def remove_expired(self, now_ms: int) -> None:
        """Remove producers that have not appended for `PRODUCER_EXPIRATION_MS`."""
        gone = [
            at
            for at, one in self._producers.items()
            if now_ms - one.seen_ms >= PRODUCER_EXPIRATION_MS
        ]
        for producer_id in gone:
            del self._producers[producer_id]

    def last_offsets(self) -> frozenset[int]:
        """Return the last offset of each producer's last batch. Compaction keeps those batches."""
        producers = self._producers.values()
        return frozenset(one.batches[-1].last_offset for one in producers if one.batches)

    def snapshot(self) -> bytes:
        """Return the state as bytes for `load`."""
        body = bytearray()
        for producer_id, one in self._producers.items():
            body += _PRODUCER.pack(producer_id, one.epoch, one.seen_ms, len(one.batches))
            for batch in one.batches:
                body += _BATCH.pack(*_fields(batch))
        header = _FILE.pack(0, len(body), _VERSION, len(self._producers))[4:]
        return b"".join((crc32c(body, crc32c(header)).to_bytes(4, "big"), header, body))

    @classmethod
    def load(cls, content: bytes) -> ProducerStateManager | None:
        """Return the state of a snapshot; None if it is incomplete.

        Ignores bytes after it: a longer snapshot may have been overwritten.
        """
        if len(content) < _FILE.size:
            return None
        checksum, size, version, count = _FILE.unpack_from(content)
        if version != _VERSION or checksum != crc32c(content[4 : _FILE.size + size]):
            return None
        producers, at = cls(), _FILE.size
        for _ in range(count):
            producer_id, epoch, seen_ms, batches = _PRODUCER.unpack_from(content, at)
            at += _PRODUCER.size
            end = at + batches * _BATCH.size
            kept = (SequencedBatch(*fields) for fields in _BATCH.iter_unpack(content[at:end]))
            producers._producers[producer_id] = _Producer(epoch, seen_ms, kept)
            at = end
        return producers

    def _duplicate(self, batch: BatchHeader) -> DuplicateBatch | None:
        producer = self._producers.get(batch.producer_id)
        if producer is None or producer.epoch != batch.producer_epoch:
            return None
        numbers = batch.base_sequence, _last_sequence_of(batch)
        for kept in producer.batches:
            if (kept.first_sequence, kept.last_sequence) == numbers:
                return DuplicateBatch(kept.base_offset, kept.last_offset)
        return None

    def _last_sequence(self, producer_id: int) -> tuple[int, int] | None:
        """Return a producer's epoch and last sequence, -1 before its first batch."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return None
        return producer.epoch, producer.batches[-1].last_sequence if producer.batches else -1


def _sequence_after(sequence: int, records: int) -> int:
    """Return the sequence ``records`` later; 2^31-1 is followed by 0."""
    return (sequence + records) & SEQUENCE_MAX


def _last_sequence_of(batch: BatchHeader) -> int:
    return _sequence_after(batch.base_sequence, batch.last_offset_delta)


def _check_sequence(batch: BatchHeader, epoch: int, last: int) -> Refusal | None:
    """Check a batch of a producer whose last batch had this epoch and sequence."""
    producer = f"producer {batch.producer_id}"
    if batch.producer_epoch < epoch:
        return Refusal(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"{producer} has epoch {batch.producer_epoch}, but epoch {epoch} is known",
        )
    expected = _sequence_after(last, 1) if batch.producer_epoch == epoch else 0
    if batch.base_sequence != expected:
        return Refusal(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"{producer} sent sequence {batch.base_sequence}, expected {expected}",
        )
    return None


def _fields(batch: SequencedBatch) -> tuple[int, int, int, int]:
    return batch.first_sequence, batch.last_sequence, batch.base_offset, batch.last_offset
