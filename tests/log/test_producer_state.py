"""Idempotent producers: sequence numbers, epochs, duplicates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.log.producer_state import (
    BATCHES_KEPT,
    PRODUCER_EXPIRATION_MS,
    SEQUENCE_MAX,
    ProducerStateManager,
)
from partage.model.errors import ErrorCode
from partage.wire.records.transaction_marker import TransactionMarkerRecord

from .partition_host import Host, batch
from .property_settings import PROPERTY_SETTINGS

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def sent(sequence: int, count: int = 1, epoch: int = 0, producer_id: int = 1) -> bytes:
    return batch(*[b"%d" % sequence] * count, producer=(producer_id, epoch, sequence))


def test_sequences_must_be_consecutive() -> None:
    host = Host()
    host.write(sent(0, 3), sent(3, 2))
    assert host.refused(sent(6)).code is OUT_OF_ORDER
    assert host.refused(sent(4)).code is OUT_OF_ORDER
    assert host.append(sent(5)).base_offset == 5


def test_last_five_batches_are_recognized_as_duplicates() -> None:
    host = Host()
    host.write(*(sent(n) for n in range(7)))
    for n in range(7 - BATCHES_KEPT, 7):
        again = host.append(sent(n))
        assert (again.base_offset, again.last_offset, again.writes) == (n, n, [])
    assert host.refused(sent(1)).code is OUT_OF_ORDER
    # same first sequence, different last sequence
    assert host.refused(sent(3, 2)).code is OUT_OF_ORDER


def test_duplicate_of_pending_batch_is_recognized() -> None:
    host = Host()
    host.append(sent(0))
    again = host.append(sent(0))
    assert again.last_offset >= host.log.high_watermark
    host.flush()
    assert again.last_offset < host.log.high_watermark


def test_new_epoch_starts_at_zero_and_fences_old_one() -> None:
    host = Host()
    host.write(sent(0), sent(1))
    assert host.refused(sent(1, epoch=1)).code is OUT_OF_ORDER
    host.write(sent(0, epoch=1))
    assert host.refused(sent(2)).code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert host.append(sent(1, epoch=1)).base_offset == 3


def test_unknown_producer_may_start_with_any_sequence() -> None:
    host = Host()
    assert host.append(sent(17)).base_offset == 0
    assert host.refused(sent(20)).code is OUT_OF_ORDER
    assert host.append(sent(5, producer_id=2, epoch=4)).base_offset == 1


def test_sequence_wraps_around() -> None:
    host = Host()
    host.write(sent(SEQUENCE_MAX - 1, 2))
    assert host.refused(sent(1)).code is OUT_OF_ORDER
    host.write(sent(0))
    host = Host()
    host.write(sent(SEQUENCE_MAX, 3))
    host.write(sent(2))
    assert host.append(sent(SEQUENCE_MAX, 3)).base_offset == 0


def test_batches_of_one_request_are_checked_in_order() -> None:
    host = Host()
    assert host.refused(sent(0) + sent(2)).code is OUT_OF_ORDER
    assert host.append(sent(0) + sent(1, 2)).last_offset == 2
    assert host.append(sent(0) + sent(1, 2)).base_offset == 0
    assert host.append(sent(3)).base_offset == 3


def test_refused_batch_does_not_change_state() -> None:
    host = Host()
    host.write(sent(0))
    host.refused(sent(1) + sent(5))
    assert host.append(sent(1)).base_offset == 1


def test_producer_idle_for_a_day_is_removed() -> None:
    host = Host()
    host.write(sent(0), sent(4, producer_id=2))
    host.now_ms += PRODUCER_EXPIRATION_MS - 1
    host.write(sent(5, producer_id=2))
    host.log.producer_state.remove_expired(host.now_ms)
    assert len(host.log.producer_state) == 2
    host.log.producer_state.remove_expired(host.now_ms + 1)
    assert len(host.log.producer_state) == 1
    assert host.append(sent(7)).base_offset == 3


def test_broker_batches_are_not_checked_for_sequences() -> None:
    host = Host()
    host.append(sent(3), from_client=False)
    host.append(sent(9), from_client=False)


@PROPERTY_SETTINGS
@given(
    st.dictionaries(
        st.integers(0, 2**63 - 1),
        st.tuples(
            st.integers(0, 2**15 - 1),
            st.lists(st.tuples(st.integers(0, SEQUENCE_MAX), st.integers(0, 99)), max_size=7),
        ),
        max_size=5,
    ),
    st.binary(max_size=20),
)
def test_snapshot_restores_all_producers(
    told: dict[int, tuple[int, list[tuple[int, int]]]], after: bytes
) -> None:
    producers = ProducerStateManager()
    for producer_id, (epoch, batches) in told.items():
        marker = TransactionMarkerRecord(is_commit=True, coordinator_epoch=epoch % 7)
        producers.record_marker(producer_id, epoch, marker, 99, seen_ms=5)
        for sequence, records in batches:
            offsets = 100, 100 + records
            producers.record_batch(
                producer_id, epoch, sequence, *offsets, is_transactional=False, seen_ms=5
            )
    snapshot = producers.snapshot()
    loaded = ProducerStateManager.load(snapshot + after)
    assert loaded is not None
    assert loaded.snapshot() == snapshot
    assert loaded.last_offsets() == producers.last_offsets()


@pytest.mark.parametrize("at", range(0, 60, 7))
def test_damaged_snapshot_is_rejected(at: int) -> None:
    producers = ProducerStateManager()
    producers.record_batch(1, 0, 0, 0, 4, is_transactional=False, seen_ms=5)
    snapshot = bytearray(producers.snapshot())
    assert ProducerStateManager.load(snapshot[: len(snapshot) - 1]) is None
    snapshot[at % len(snapshot)] ^= 1
    assert ProducerStateManager.load(bytes(snapshot)) is None
