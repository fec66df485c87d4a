"""What a partition remembers of its idempotent producers (KIP-98, KIP-360).

A producer numbers its records; the last five batches of each are kept, so that a batch sent
again is answered with its first offsets and one that would leave a gap is refused. A producer
that is not known starts with any number: its earlier records may have been removed since.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from crc32c import crc32c

from partage.log.outcomes import Refusal
from partage.model.errors import ErrorCode
from partage.wire.records.batch import NO_PRODUCER, BatchHeader

BATCHES_KEPT: Final = 5
EXPIRATION_MS: Final = 86_400_000  # producer.id.expiration.ms
SEQUENCE_MAX: Final = 2**31 - 1

_FILE: Final = struct.Struct(">IIHI")  # CRC-32C of what follows, its length, version, producers
_PRODUCER: Final = struct.Struct(">qhqB")  # id, epoch, last seen, batches
_BATCH: Final = struct.Struct(">iiqq")  # first and last sequence, first and last offset
_VERSION: Final = 1


class SequencedBatch(msgspec.Struct, frozen=True):
    """One of a producer's last batches."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


class Duplicate(msgspec.Struct, frozen=True):
    """A batch that was appended before, and where."""

    base_offset: int
    last_offset: int


class _Producer:
    """One producer: its epoch, when it last wrote, and its last batches, oldest first."""

    __slots__ = ("batches", "epoch", "seen_ms")

    def __init__(self, epoch: int, seen_ms: int, batches: Iterable[SequencedBatch] = ()) -> None:
        self.epoch = epoch
        self.seen_ms = seen_ms
        self.batches = deque(batches, BATCHES_KEPT)


class Producers:
    """The producers of one partition. Times are ms since the epoch."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, batches: Sequence[BatchHeader]) -> Duplicate | Refusal | None:
        """Whether batches may be appended now, one after the other: `None` if they may.

        A duplicate among them answers for all. Nothing is remembered: that is `remember`'s.
        """
        last_sequences: dict[int, tuple[int, int]] = {}
        for batch in batches:
            if batch.producer_id == NO_PRODUCER:
                continue
            if duplicate := self._duplicate(batch):
                return duplicate
            last = last_sequences.get(batch.producer_id) or self._last(batch.producer_id)
            if last and (refusal := _check_sequence(batch, *last)):
                return refusal
            last_sequences[batch.producer_id] = batch.producer_epoch, _last_sequence(batch)
        return None

    def remember(
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
        """Note a batch that has been appended; one without a producer is passed over."""
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

    def expire(self, now_ms: int) -> None:
        """Forget who has not written for a day."""
        gone = [at for at, one in self._producers.items() if now_ms - one.seen_ms >= EXPIRATION_MS]
        for producer_id in gone:
            del self._producers[producer_id]

    def last_offsets(self) -> frozenset[int]:
        """The last offset of each producer's last batch: compaction keeps those batches."""
        producers = self._producers.values()
        return frozenset(one.batches[-1].last_offset for one in producers if one.batches)

    def snapshot(self) -> bytes:
        """Everything, to be loaded again by `load`."""
        body = bytearray()
        for producer_id, one in self._producers.items():
            body += _PRODUCER.pack(producer_id, one.epoch, one.seen_ms, len(one.batches))
            for batch in one.batches:
                body += _BATCH.pack(*_fields(batch))
        header = _FILE.pack(0, len(body), _VERSION, len(self._producers))[4:]
        return b"".join((crc32c(body, crc32c(header)).to_bytes(4, "big"), header, body))

    @classmethod
    def load(cls, content: bytes) -> Producers | None:
        """The producers of a snapshot; `None` if it is not whole. What follows it is left alone:
        a longer one may have been overwritten.
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

    def _duplicate(self, batch: BatchHeader) -> Duplicate | None:
        producer = self._producers.get(batch.producer_id)
        if producer is None or producer.epoch != batch.producer_epoch:
            return None
        numbers = batch.base_sequence, _last_sequence(batch)
        for kept in producer.batches:
            if (kept.first_sequence, kept.last_sequence) == numbers:
                return Duplicate(kept.base_offset, kept.last_offset)
        return None

    def _last(self, producer_id: int) -> tuple[int, int] | None:
        """A producer's epoch and last sequence, -1 before its first batch."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return None
        return producer.epoch, producer.batches[-1].last_sequence if producer.batches else -1


def _sequence_after(sequence: int, records: int) -> int:
    """The sequence that many records later; after 2^31-1 comes 0."""
    return (sequence + records) & SEQUENCE_MAX


def _last_sequence(batch: BatchHeader) -> int:
    return _sequence_after(batch.base_sequence, batch.last_offset_delta)


def _check_sequence(batch: BatchHeader, epoch: int, last: int) -> Refusal | None:
    """What is wrong with a batch of a producer whose last one had this epoch and sequence."""
    who = f"producer {batch.producer_id}"
    if batch.producer_epoch < epoch:
        return Refusal(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"{who} has epoch {batch.producer_epoch}, and {epoch} has been seen",
        )
    expected = _sequence_after(last, 1) if batch.producer_epoch == epoch else 0
    if batch.base_sequence != expected:
        return Refusal(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"{who} sent sequence {batch.base_sequence} where {expected} was due",
        )
    return None


def _fields(batch: SequencedBatch) -> tuple[int, int, int, int]:
    return batch.first_sequence, batch.last_sequence, batch.base_offset, batch.last_offset
