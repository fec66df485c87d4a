"""Transactional batches and markers for the log of one partition."""

from __future__ import annotations

from partage.log.producer_state import VerificationGuard
from partage.log.results import AppendResult, Refusal
from partage.model.errors import ErrorCode
from partage.wire.records.encoder import SimpleRecord, encode_batch

from .partition_host import NOW_MS, Host

TRANSACTION_VERSION = 2


def transactional(
    sequence: int, count: int = 1, *, producer_id: int = 1, epoch: int = 0, size: int = 5
) -> bytes:
    """Return a transactional batch."""
    values = [b"%d" % (sequence + n) + b"." * size for n in range(count)]
    return encode_batch(
        [SimpleRecord(b"key", value, timestamp_ms=NOW_MS) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def plain(sequence: int, *, producer_id: int = 1, epoch: int = 0) -> bytes:
    """Return a batch of the same kind outside any transaction."""
    return encode_batch(
        [SimpleRecord(None, b"plain", timestamp_ms=NOW_MS)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def verified(
    host: Host,
    producer_id: int = 1,
    epoch: int = 0,
    sequence: int = 0,
    *,
    raises_epochs: bool = False,
) -> VerificationGuard | None:
    """Begin a verification that must not be refused."""
    guard = host.log.producer_state.start_verification(
        producer_id, epoch, sequence, raises_epochs=raises_epochs, at_ms=host.now_ms
    )
    assert not isinstance(guard, Refusal)
    return guard


def send(host: Host, sequence: int = 0, *, producer_id: int = 1, epoch: int = 0) -> AppendResult:
    """Append a verified transactional batch and flush it."""
    appended = host.append(
        transactional(sequence, producer_id=producer_id, epoch=epoch),
        guard=verified(host, producer_id, epoch, sequence),
    )
    host.flush()
    return appended


def mark(
    host: Host,
    *,
    producer_id: int = 1,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    is_commit: bool = True,
    version: int = 0,
) -> AppendResult:
    """Append a marker and flush it."""
    appended = marked(host, producer_id, epoch, coordinator_epoch, is_commit, version)
    assert isinstance(appended, AppendResult), appended
    host.writes += appended.writes
    host.flush()
    return appended


def marked(
    host: Host,
    producer_id: int = 1,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    is_commit: bool = True,
    version: int = 0,
) -> AppendResult | Refusal:
    return host.log.append_marker(
        producer_id,
        epoch,
        coordinator_epoch,
        is_commit=is_commit,
        transaction_version=version,
        at_ms=host.now_ms,
    )


def refusal_of(result: AppendResult | Refusal) -> ErrorCode:
    assert isinstance(result, Refusal), result
    return result.code


def append_code(host: Host, payload: bytes, guard: VerificationGuard | None = None) -> ErrorCode:
    return refusal_of(host.log.append(payload, at_ms=host.now_ms, guard=guard))


def aborted(host: Host, begin: int, bytes_max: int = 1 << 20) -> list[tuple[int, int]]:
    """Return producer and first offset of the aborted transactions in a fetch."""
    slices = host.log.locate(begin, bytes_max, only_stable=True)
    assert not isinstance(slices, Refusal)
    found = host.log.aborted_transactions(begin, slices)
    return [(one.producer_id, one.first_offset) for one in found]


def many_aborted(host: Host, count: int, start: int = 0) -> list[tuple[int, int]]:
    """Append transactions, of which every second one is aborted."""
    expected = []
    for n in range(start, start + count):
        first = send(host, n).base_offset
        mark(host, is_commit=bool(n % 2))
        if not n % 2:
            expected.append((1, first))
    return expected
