"""State of a partition's idempotent and transactional producers (KIP-98, KIP-360, KIP-890).

A producer numbers its records. The last five batches of each producer are kept. A repeated batch is
answered with its first offsets, and a batch that leaves a gap is refused. An unknown producer may
start with any sequence, because its earlier records may have been removed.

The first transactional batch of a producer opens its transaction on the partition, and a marker
ends it. Before that batch the coordinator must have verified that the partition is part of the
transaction: see `ProducerStateManager.start_verification`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.wire.records.batch import NO_PRODUCER, BatchHeader
from partage.wire.records.checksum import crc32c
from partage.wire.records.transaction_marker import TransactionMarkerRecord

BATCHES_KEPT: Final = 5
PRODUCER_EXPIRATION_MS: Final = 86_400_000  # producer.id.expiration.ms
SEQUENCE_MAX: Final = 2**31 - 1
EPOCH_MAX: Final = 2**15 - 1
NO_COORDINATOR_EPOCH: Final = -1
_EPOCH_PER_TRANSACTION: Final = 2  # the transaction version that raises the epoch with each marker

# CRC-32C of the rest, length of the body, version, producer count.
_FILE: Final = struct.Struct(">IIHI")
#: Id, epoch, last append time, coordinator epoch, transaction start (-1 if none), batch count.
_PRODUCER: Final = struct.Struct(">qhqiqB")
_BATCH: Final = struct.Struct(">iiqq")  # first and last sequence, first and last offset
_VERSION: Final = 2
_NO_TRANSACTION: Final = -1


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


class VerificationGuard:
    """A proof that a verification has begun and no marker has ended it, compared by identity."""

    __slots__ = ()


class CompletedTransaction(NamedTuple):
    """A transaction that a marker has ended.

    ``last_stable_offset`` is the one just after the marker, if the marker were durable.
    """

    producer_id: int
    first_offset: int
    last_offset: int  # of the marker
    is_aborted: bool
    last_stable_offset: int


class _Verification:
    """A verification of a producer's transaction.

    It exists from its start until the first batch of the transaction or a marker is appended.
    ``lowest_sequence`` is the lowest sequence of the batches that waited for it. Later batches must
    not overtake the batch with this sequence.
    """

    __slots__ = ("epoch", "guard", "lowest_sequence", "raises_epochs", "started_ms")

    def __init__(self, epoch: int, sequence: int, raises_epochs: bool, started_ms: int) -> None:
        self.guard = VerificationGuard()
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.raises_epochs = raises_epochs
        self.started_ms = started_ms


class _Producer:
    """The state of one producer.

    It has the epoch, the time of its last append, its last batches, oldest first, the epoch of its
    transaction coordinator, and the first offset of its open transaction, None if none is open.
    """

    __slots__ = ("batches", "coordinator_epoch", "epoch", "seen_ms", "transaction_start")

    def __init__(self, epoch: int, seen_ms: int, batches: Iterable[SequencedBatch] = ()) -> None:
        self.epoch = epoch
        self.seen_ms = seen_ms
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.transaction_start: int | None = None
        self.batches = deque(batches, BATCHES_KEPT)

    def use_epoch(self, epoch: int) -> None:
        """Forget the sequences of another epoch."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class ProducerSummary(NamedTuple):
    """A producer and its last append.

    ``last_sequence`` is -1 if no batch with one is known, ``coordinator_epoch`` before the first
    marker, and ``transaction_start`` without an open transaction.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    seen_ms: int
    coordinator_epoch: int
    transaction_start: int


class _LastBatch(NamedTuple):
    """The facts about a producer's last batch that the check of the next one needs."""

    epoch: int
    sequence: int  # -1 before the first batch of the epoch
    is_in_transaction: bool


class ProducerStateManager:
    """The producers of one partition. Times are ms since the epoch."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}
        self._verifications: dict[int, _Verification] = {}
        #: Producer ids of open transactions by first offset, in order.
        self._ongoing: dict[int, int] = {}
        #: First offset and marker of ended transactions whose marker may not be durable yet.
        self._undurable = deque[tuple[int, int]]()
        #: First offset of the earliest transaction that is open or whose marker is not durable.
        #: None if there is none. An attribute, because every fetch reads it.
        self.first_unstable_offset: int | None = None

    def summaries(self) -> list[ProducerSummary]:
        """Return the known producers."""
        return [
            ProducerSummary(
                producer_id,
                its.epoch,
                its.batches[-1].last_sequence if its.batches else -1,
                its.seen_ms,
                its.coordinator_epoch,
                _NO_TRANSACTION if its.transaction_start is None else its.transaction_start,
            )
            for producer_id, its in self._producers.items()
        ]

    def __len__(self) -> int:
        return len(self._producers)

    # Transactions

    def on_high_watermark(self, high_watermark: int) -> None:
        """Regard transactions as closed whose markers are below the high watermark."""
        undurable = self._undurable
        if not undurable:
            return
        while undurable and undurable[0][1] < high_watermark:
            undurable.popleft()
        self._update_first_unstable()

    def _update_first_unstable(self) -> None:
        first = next(iter(self._ongoing), None)
        for ended, _ in self._undurable:
            first = ended if first is None else min(first, ended)
        self.first_unstable_offset = first

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """True if the producer has an open transaction and still has this epoch."""
        producer = self._producers.get(producer_id)
        return (
            producer is not None
            and producer.transaction_start is not None
            and producer.epoch == epoch
        )

    def start_verification(
        self,
        producer_id: int,
        epoch: int,
        sequence: int,
        *,
        raises_epochs: bool,
        at_ms: int,
    ) -> VerificationGuard | Refusal | None:
        """Begin to verify that the partition is part of a producer's transaction.

        Ask the coordinator next, and pass the guard with the batch. The marker of the transaction
        makes it invalid: a batch after the marker would open a transaction that nothing ends.

        Args:
            producer_id: The producer.
            epoch: The epoch of its batch.
            sequence: The first sequence of its batch.
            raises_epochs: True if the client uses transaction version 2 (KIP-890), so that its
                first batch in an epoch has the sequence 0.
            at_ms: Current time, ms since the epoch.

        Returns:
            The guard, None if the transaction is open already, or a `Refusal` with
            INVALID_PRODUCER_EPOCH.
        """
        producer = self._producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            return _old_epoch(producer_id, epoch, producer.epoch)
        if self.has_open_transaction(producer_id, epoch):
            return None
        found = self._verifications.get(producer_id)
        if found is None:
            found = _Verification(epoch, sequence, raises_epochs, at_ms)
            self._verifications[producer_id] = found
        elif epoch > found.epoch:
            found.epoch, found.lowest_sequence = epoch, sequence
        elif epoch == found.epoch:
            found.lowest_sequence = min(found.lowest_sequence, sequence)
        return found.guard

    def coordinator_epoch(self, producer_id: int) -> int:
        """Return the coordinator epoch of the producer's last marker; -1 if there is none."""
        producer = self._producers.get(producer_id)
        return -1 if producer is None else producer.coordinator_epoch

    def check_marker(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> Refusal | None:
        """Return the reason why a marker may not be appended, or None.

        With transaction version 2 the marker must raise the epoch. Kafka also accepts a repeated
        marker, which has the current epoch and finds no open transaction.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return None
        if transaction_version >= _EPOCH_PER_TRANSACTION and epoch == producer.epoch:
            is_old = producer.transaction_start is not None and epoch != EPOCH_MAX
        else:
            is_old = epoch < producer.epoch
        if is_old:
            return _old_epoch(producer_id, epoch, producer.epoch)
        if coordinator_epoch < producer.coordinator_epoch:
            return Refusal(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the marker for producer {producer_id} has coordinator epoch {coordinator_epoch}, "
                f"but epoch {producer.coordinator_epoch} is known",
            )
        return None

    def record_marker(
        self,
        producer_id: int,
        epoch: int,
        marker: TransactionMarkerRecord,
        offset: int,
        *,
        seen_ms: int,
    ) -> CompletedTransaction | None:
        """Record an appended marker; return the transaction that it ends, if one is open."""
        self._end_verification_of_epoch(producer_id, epoch)
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = _Producer(epoch, seen_ms)
        producer.use_epoch(epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.seen_ms = seen_ms
        first_offset, producer.transaction_start = producer.transaction_start, None
        if first_offset is None:
            return None
        del self._ongoing[first_offset]
        self._undurable.append((first_offset, offset))
        return CompletedTransaction(
            producer_id,
            first_offset,
            offset,
            not marker.is_commit,
            next(iter(self._ongoing), offset + 1),
        )

    def _end_verification_of_epoch(self, producer_id: int, epoch: int) -> None:
        """Invalidate the verification of the transaction that a marker ends.

        With transaction version 2, a marker raises the epoch to that of the next transaction. The
        first batch of that one, or of a later one, may have arrived before the marker, or before a
        repetition of it.
        """
        verification = self._verifications.get(producer_id)
        if verification is not None and not (
            verification.raises_epochs and verification.epoch >= epoch
        ):
            del self._verifications[producer_id]

    def end_verification(self, producer_id: int, transaction_version: int) -> None:
        """Invalidate the producer's verification after a marker from before transaction version 2.

        Its epoch is that of the transaction that it ends, not that of the next one.
        """
        if transaction_version < _EPOCH_PER_TRANSACTION:
            self._verifications.pop(producer_id, None)

    # Batches

    def check(
        self, batches: Sequence[BatchHeader], guard: VerificationGuard | None = None
    ) -> DuplicateBatch | Refusal | None:
        """Check whether batches of a client may be appended in this order.

        Does not change the state: call `record_batch` after the append.

        Args:
            batches: The headers of the batches.
            guard: The result of `start_verification`. A batch that opens a transaction needs it.

        Returns:
            None if they may be appended, the offsets of the first duplicate, or a `Refusal` with
            OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH or INVALID_TXN_STATE.
        """
        last_batches: dict[int, _LastBatch] = {}
        for batch in batches:
            if batch.producer_id == NO_PRODUCER:
                continue
            if duplicate := self._duplicate(batch):
                if all(self._duplicate(each) for each in batches):
                    return duplicate
                # One result cannot acknowledge appended batches and new ones.
                return _out_of_order(
                    batch.producer_id, batch.base_sequence, _last_sequence_of(batches[-1])
                )
            last = last_batches.get(batch.producer_id) or self._last_batch(batch.producer_id)
            refusal = (
                self._check_transaction(batch, last, guard) if batch.is_transactional else None
            )
            if refusal is None and last is not None:
                refusal = _check_sequence(batch, last)
            if refusal is not None:
                return refusal
            last_batches[batch.producer_id] = _LastBatch(
                batch.producer_epoch, _last_sequence_of(batch), batch.is_transactional
            )
        return None

    def check_from_broker(self, batches: Sequence[BatchHeader]) -> Refusal | None:
        """Check batches of the broker itself, which have no sequences.

        Only the epoch of a transactional batch matters: an older one belongs to a producer that was
        fenced.
        """
        for batch in batches:
            if batch.is_transactional and not batch.is_control:
                producer = self._producers.get(batch.producer_id)
                if producer is not None and batch.producer_epoch < producer.epoch:
                    return _old_epoch(batch.producer_id, batch.producer_epoch, producer.epoch)
        return None

    def record_batch(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        base_offset: int,
        last_offset: int,
        *,
        is_transactional: bool,
        seen_ms: int,
    ) -> None:
        """Record an appended batch of records; ignore one without a producer id."""
        if producer_id == NO_PRODUCER:
            return
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = _Producer(epoch, seen_ms)
        producer.use_epoch(epoch)
        producer.seen_ms = seen_ms
        last_sequence = base_sequence  # -1 for batches of the broker, which have no sequences
        if base_sequence >= 0:
            last_sequence = _sequence_after(base_sequence, last_offset - base_offset)
        batch = SequencedBatch(base_sequence, last_sequence, base_offset, last_offset)
        producer.batches.append(batch)
        if is_transactional:
            self._verifications.pop(producer_id, None)
            if producer.transaction_start is None:
                producer.transaction_start = base_offset
                self._ongoing[base_offset] = producer_id
                if self.first_unstable_offset is None:  # otherwise an earlier one is unstable
                    self.first_unstable_offset = base_offset

    def remove_expired(self, now_ms: int) -> None:
        """Remove producers that have not appended for `PRODUCER_EXPIRATION_MS`.

        A producer with an open transaction stays.
        """
        gone = [
            at
            for at, one in self._producers.items()
            if one.transaction_start is None and now_ms - one.seen_ms >= PRODUCER_EXPIRATION_MS
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        verified = [
            at
            for at, one in self._verifications.items()
            if now_ms - one.started_ms >= PRODUCER_EXPIRATION_MS
        ]
        for producer_id in verified:
            del self._verifications[producer_id]

    def last_offsets(self) -> frozenset[int]:
        """Return the last offset of each producer's last batch. Compaction keeps those batches."""
        producers = self._producers.values()
        return frozenset(one.batches[-1].last_offset for one in producers if one.batches)

    def epochs_without_batches(self) -> dict[int, int]:
        """Return the epochs of producers of which only a marker is known, by producer id.

        Compaction keeps markers with these epochs, because they fence earlier epochs.
        """
        return {at: one.epoch for at, one in self._producers.items() if not one.batches}

    def snapshot(self) -> bytes:
        """Return the state as bytes for `load`."""
        body = bytearray()
        for producer_id, one in self._producers.items():
            body += _PRODUCER.pack(
                producer_id,
                one.epoch,
                one.seen_ms,
                one.coordinator_epoch,
                _NO_TRANSACTION if one.transaction_start is None else one.transaction_start,
                len(one.batches),
            )
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
        ongoing = dict[int, int]()
        for _ in range(count):
            producer_id, epoch, seen_ms, *transaction, batches = _PRODUCER.unpack_from(content, at)
            at += _PRODUCER.size
            end = at + batches * _BATCH.size
            kept = (SequencedBatch(*fields) for fields in _BATCH.iter_unpack(content[at:end]))
            producer = producers._producers[producer_id] = _Producer(epoch, seen_ms, kept)
            producer.coordinator_epoch, first_offset = transaction
            if first_offset != _NO_TRANSACTION:
                producer.transaction_start = first_offset
                ongoing[first_offset] = producer_id
            at = end
        producers._ongoing = dict(sorted(ongoing.items()))
        producers._update_first_unstable()
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

    def _last_batch(self, producer_id: int) -> _LastBatch | None:
        """Return the last batch of a producer; None if the producer is unknown."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return None
        sequence = producer.batches[-1].last_sequence if producer.batches else -1
        return _LastBatch(producer.epoch, sequence, producer.transaction_start is not None)

    def _check_transaction(
        self, batch: BatchHeader, last: _LastBatch | None, guard: VerificationGuard | None
    ) -> Refusal | None:
        """Check that a transaction is open for a batch, or was verified for it."""
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        if last is not None and epoch < last.epoch:
            return _old_epoch(producer_id, epoch, last.epoch)
        if last is not None and last.is_in_transaction and last.epoch == epoch:
            return None
        verification = self._verifications.get(producer_id)
        if guard is None or verification is None or guard is not verification.guard:
            return Refusal(
                ErrorCode.INVALID_TXN_STATE,
                f"the transaction of producer {producer_id} is not open on this partition",
            )
        first = batch.base_sequence
        is_unknown = last is None or last.sequence < 0
        if verification.raises_epochs and first and is_unknown:
            return _out_of_order(producer_id, first, 0)
        if first > verification.lowest_sequence:
            return _out_of_order(producer_id, first, verification.lowest_sequence)
        return None


def _sequence_after(sequence: int, records: int) -> int:
    """Return the sequence ``records`` later; 2^31-1 is followed by 0."""
    return (sequence + records) & SEQUENCE_MAX


def _last_sequence_of(batch: BatchHeader) -> int:
    return _sequence_after(batch.base_sequence, batch.last_offset_delta)


def _check_sequence(batch: BatchHeader, last: _LastBatch) -> Refusal | None:
    """Check a batch of a producer whose last batch is known."""
    producer_id = batch.producer_id
    if batch.producer_epoch < last.epoch:
        return _old_epoch(producer_id, batch.producer_epoch, last.epoch)
    expected = _sequence_after(last.sequence, 1) if batch.producer_epoch == last.epoch else 0
    if batch.base_sequence != expected:
        return _out_of_order(producer_id, batch.base_sequence, expected)
    if last.is_in_transaction and not batch.is_transactional:
        return Refusal(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {producer_id} sent a batch without a transaction, but its transaction is "
            "open",
        )
    return None


def _old_epoch(producer_id: int, epoch: int, known: int) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} has epoch {epoch}, but epoch {known} is known",
    )


def _out_of_order(producer_id: int, sequence: int, expected: int) -> Refusal:
    return Refusal(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {producer_id} sent sequence {sequence}, expected {expected}",
    )


def _fields(batch: SequencedBatch) -> tuple[int, int, int, int]:
    return batch.first_sequence, batch.last_sequence, batch.base_offset, batch.last_offset
