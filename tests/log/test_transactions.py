"""Transactions of a partition: verification, markers, last stable offset, aborted transactions."""

from __future__ import annotations

from partage.log.io import perform_writes
from partage.log.producer_state import EPOCH_MAX, ProducerStateManager, VerificationGuard
from partage.log.results import AppendResult, Refusal, Write
from partage.model.errors import ErrorCode
from partage.wire.records.transaction_marker import TransactionMarkerRecord

from .partition_host import NOW_MS, Host
from .transactional import (
    TRANSACTION_VERSION,
    aborted,
    append_code,
    many_aborted,
    mark,
    marked,
    plain,
    refusal_of,
    send,
    transactional,
    verified,
)

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_transactional_batch_without_verification_is_refused() -> None:
    host = Host()
    assert host.refused(transactional(0)).code is ErrorCode.INVALID_TXN_STATE
    assert append_code(host, transactional(0), VerificationGuard()) is ErrorCode.INVALID_TXN_STATE


def test_open_transaction_needs_no_verification() -> None:
    host = Host()
    send(host)
    assert verified(host, sequence=1) is None
    assert host.append(transactional(1)).base_offset == 1
    assert not host.log.producer_state.has_open_transaction(1, 1)
    assert not host.log.producer_state.has_open_transaction(2, 0)


def test_marker_invalidates_a_pending_verification() -> None:
    host = Host()
    guard = verified(host)
    mark(host)
    assert append_code(host, transactional(0), guard) is ErrorCode.INVALID_TXN_STATE


def test_marker_keeps_the_verification_of_the_next_transaction() -> None:
    """With transaction version 2, the epoch of a marker is that of the next transaction."""
    host = Host()
    send(host)
    guard = verified(host, epoch=1, raises_epochs=True)
    mark(host, epoch=1, version=TRANSACTION_VERSION)
    assert host.append(transactional(0, epoch=1), guard=guard).base_offset == 2


def test_repeated_marker_keeps_the_verification_of_the_next_transaction() -> None:
    """The coordinator repeats a marker after a lost response, or after it failed over."""
    host = Host()
    send(host)
    mark(host, epoch=1, version=TRANSACTION_VERSION)
    guard = verified(host, epoch=1, raises_epochs=True)
    mark(host, epoch=1, coordinator_epoch=1, version=TRANSACTION_VERSION)
    assert host.append(transactional(0, epoch=1), guard=guard).base_offset == 3


def test_late_marker_keeps_the_verification_of_a_later_transaction() -> None:
    """A marker arrives again in a transaction after the next one, which had no other batch here."""
    host = Host()
    send(host)
    mark(host, epoch=1, version=TRANSACTION_VERSION)
    guard = verified(host, epoch=2, raises_epochs=True)
    mark(host, epoch=1, version=TRANSACTION_VERSION)
    assert host.append(transactional(0, epoch=2), guard=guard).base_offset == 3


def test_marker_of_the_same_epoch_invalidates_a_verification() -> None:
    host = Host()
    mark(host, epoch=1, version=TRANSACTION_VERSION)
    guard = verified(host, epoch=1, raises_epochs=True)
    mark(host, epoch=1)
    assert append_code(host, transactional(0, epoch=1), guard) is ErrorCode.INVALID_TXN_STATE


def test_marker_of_later_epoch_invalidates_a_verification_of_version_2() -> None:
    host = Host()
    mark(host, epoch=1, version=TRANSACTION_VERSION)
    guard = verified(host, epoch=1, raises_epochs=True)
    mark(host, epoch=2, is_commit=False, version=TRANSACTION_VERSION)
    assert append_code(host, transactional(0, epoch=2), guard) is ErrorCode.INVALID_TXN_STATE


def test_batch_must_not_overtake_one_that_waited_for_verification() -> None:
    host = Host()
    guard = verified(host, sequence=3)
    assert verified(host, sequence=4) is guard
    assert append_code(host, transactional(4), guard) is OUT_OF_ORDER
    assert host.append(transactional(3), guard=guard).base_offset == 0
    assert host.append(transactional(4)).base_offset == 1


def test_verification_of_a_later_epoch_stops_no_open_transaction() -> None:
    """In Kafka, a request with a wrong epoch makes the producer's next batches out of order."""
    host = Host()
    send(host)
    assert verified(host, epoch=7) is not None
    assert host.append(transactional(1)).base_offset == 1
    host = Host()
    host.append(plain(0))
    assert verified(host, epoch=7) is not None
    assert host.append(plain(1)).base_offset == 1


def test_first_sequence_without_state_must_be_zero_in_version_2() -> None:
    host = Host()
    guard = verified(host, sequence=7, raises_epochs=True)
    assert append_code(host, transactional(7), guard) is OUT_OF_ORDER
    host = Host()
    assert host.append(transactional(7), guard=verified(host, sequence=7)).base_offset == 0


def test_several_batches_of_one_request_open_one_transaction() -> None:
    host = Host()
    payload = transactional(0, 2) + transactional(2)
    assert host.append(payload, guard=verified(host)).last_offset == 2
    host.flush()
    assert host.log.last_stable_offset == 0
    mark(host)
    assert host.log.last_stable_offset == 4


def test_plain_batch_in_open_transaction_is_refused() -> None:
    host = Host()
    send(host)
    assert host.refused(plain(1)).code is ErrorCode.INVALID_TXN_STATE
    mark(host)
    assert host.append(plain(1)).base_offset == 2


def test_old_epoch_is_refused_before_its_transaction_state() -> None:
    host = Host()
    send(host, epoch=1)
    assert host.refused(transactional(1)).code is ErrorCode.INVALID_PRODUCER_EPOCH
    refused = host.log.producer_state.start_verification(1, 0, 1, raises_epochs=False, at_ms=NOW_MS)
    assert isinstance(refused, Refusal)
    assert refused.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_marker_with_same_epoch_keeps_sequences() -> None:
    host = Host()
    send(host)
    mark(host)
    assert append_code(host, transactional(3), verified(host, sequence=3)) is OUT_OF_ORDER
    send(host, 1)


def test_marker_with_new_epoch_forgets_sequences() -> None:
    host = Host()
    send(host)
    send(host, 1)
    mark(host, epoch=1, version=TRANSACTION_VERSION)
    assert append_code(host, transactional(2, epoch=1), verified(host, 1, 1, 2)) is OUT_OF_ORDER
    send(host, 0, epoch=1)


def test_marker_of_old_coordinator_is_fenced() -> None:
    host = Host()
    mark(host, coordinator_epoch=4)
    assert refusal_of(marked(host, coordinator_epoch=3)) is (
        ErrorCode.TRANSACTION_COORDINATOR_FENCED
    )
    mark(host, coordinator_epoch=4)


def test_marker_of_old_versions_accepts_current_epoch() -> None:
    host = Host()
    send(host, epoch=3)
    assert refusal_of(marked(host, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    mark(host, epoch=3)


def test_marker_of_version_2_must_raise_epoch_of_open_transaction() -> None:
    host = Host()
    send(host, epoch=3)
    code = refusal_of(marked(host, epoch=3, version=TRANSACTION_VERSION))
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH
    mark(host, epoch=4, version=TRANSACTION_VERSION)
    # A repeated marker finds no open transaction.
    mark(host, epoch=4, version=TRANSACTION_VERSION)
    code = refusal_of(marked(host, epoch=3, version=TRANSACTION_VERSION))
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_marker_of_version_2_may_repeat_the_largest_epoch() -> None:
    host = Host()
    send(host, epoch=EPOCH_MAX)
    mark(host, epoch=EPOCH_MAX, version=TRANSACTION_VERSION)


def test_broker_batch_of_fenced_producer_is_refused() -> None:
    host = Host()
    mark(host, epoch=5)
    refused = host.log.append(transactional(0, epoch=4), at_ms=NOW_MS, from_client=False)
    assert refusal_of(refused) is ErrorCode.INVALID_PRODUCER_EPOCH
    host.append(transactional(0, epoch=5), from_client=False)
    assert host.log.producer_state.has_open_transaction(1, 5)


def test_last_stable_offset_follows_earliest_open_transaction() -> None:
    host = Host()
    host.write(plain(0, producer_id=9))
    assert host.log.last_stable_offset == 1
    send(host, producer_id=1)
    send(host, producer_id=2)
    assert host.log.last_stable_offset == 1
    mark(host, producer_id=2)
    assert host.log.last_stable_offset == 1
    mark(host, producer_id=1)
    assert host.log.last_stable_offset == host.log.high_watermark == 5


def test_transaction_ends_for_readers_once_marker_is_durable() -> None:
    host = Host()
    send(host)
    appended = marked(host)
    assert isinstance(appended, AppendResult)
    host.writes += appended.writes
    assert host.log.last_stable_offset == 0
    host.append(plain(0, producer_id=2))
    host.flush()
    assert host.log.last_stable_offset == 3


def test_batch_that_is_not_durable_does_not_lower_the_stable_offset() -> None:
    host = Host()
    host.write(plain(0, producer_id=2))
    host.append(transactional(0), guard=verified(host))
    assert host.log.last_stable_offset == host.log.high_watermark == 1


def test_deleted_start_of_transaction_raises_the_stable_offset() -> None:
    host = Host()
    for sequence in range(4):
        send(host, sequence)
    host.perform(host.log.delete_records(2))
    assert host.log.last_stable_offset == 2
    assert host.log.locate(2, 1 << 20, only_stable=True) == []


def test_fetch_of_stable_records_ends_at_the_stable_offset() -> None:
    host = Host(segment_bytes=300)
    for sequence in range(5):
        host.write(plain(sequence, producer_id=2))
    send(host)
    for sequence in range(5, 9):
        host.write(plain(sequence, producer_id=2))
    assert len(host.files()) > 4
    slices = host.log.locate(0, 1 << 20, only_stable=True)
    assert not isinstance(slices, Refusal)
    everything = host.log.locate(0, 1 << 20)
    assert not isinstance(everything, Refusal)
    size = len(plain(0))
    assert sum(one.length for one in slices) == 5 * size
    assert sum(one.length for one in everything) == 9 * size + len(transactional(0))
    assert host.log.bytes_between(host.log.stable_end, host.log.durable_end) == 4 * size + len(
        transactional(0)
    )


def test_aborted_transactions_are_listed_by_first_offset() -> None:
    host = Host()
    send(host, producer_id=1)  # 0
    send(host, producer_id=2)  # 1
    send(host, producer_id=3)  # 2
    mark(host, producer_id=2, is_commit=False)  # 3
    mark(host, producer_id=3)  # 4
    assert aborted(host, 0) == []
    mark(host, producer_id=1, is_commit=False)  # 5
    assert aborted(host, 0) == [(1, 0), (2, 1)]
    assert aborted(host, 4) == [(1, 0)]
    assert aborted(host, 6) == []


def test_marker_without_transaction_is_not_in_the_index() -> None:
    host = Host()
    mark(host, is_commit=False)
    send(host)
    mark(host)
    mark(host, is_commit=False)
    assert aborted(host, 0) == []


def test_index_of_aborted_transactions_survives_a_clean_restart() -> None:
    host = Host(segment_bytes=500)
    expected = many_aborted(host, 20)
    assert aborted(host, 0) == expected
    host.close()
    host.open()
    assert not host.opened.scanned_bytes
    assert aborted(host, 0) == expected
    expected += many_aborted(host, 4, 20)
    assert aborted(host, 0) == expected


def test_index_of_overlapping_transactions_survives_a_clean_restart() -> None:
    host = Host()
    send(host, producer_id=1)
    send(host, producer_id=2)
    mark(host, producer_id=2, is_commit=False)
    host.close()
    host.open()
    assert not host.opened.scanned_bytes
    mark(host, producer_id=1, is_commit=False)
    assert aborted(host, 0) == [(1, 0), (2, 1)]


def test_index_of_aborted_transactions_is_rebuilt_after_a_crash() -> None:
    host = Host(segment_bytes=500)
    expected = many_aborted(host, 20)
    host.open()
    assert aborted(host, 0) == expected
    host.open(cuts_nothing=True)
    assert aborted(host, 0) == expected


def test_open_transaction_survives_restarts() -> None:
    host = Host(segment_bytes=500)
    many_aborted(host, 5)
    send(host, 5)
    start = host.log.end_offset - 1
    for _ in range(2):
        host.open()
        assert host.log.last_stable_offset == start
        host.close()
        host.open()
        assert host.log.last_stable_offset == start
    mark(host, is_commit=False)
    assert (1, start) in aborted(host, 0)


def test_damaged_index_of_aborted_transactions_is_rebuilt_at_start() -> None:
    host = Host(segment_bytes=500)
    expected = many_aborted(host, 20)
    host.close()
    for name in host.files():
        if name.endswith(".txnindex"):
            path = f"flights-0/{name}"
            host.disk.truncate(path, host.disk.size(path) - 1)
    host.open()
    assert aborted(host, 0) == expected


def test_index_with_bytes_after_its_end_is_replaced_at_start() -> None:
    host = Host(segment_bytes=500)
    expected = many_aborted(host, 20)
    host.close()
    for name in host.files():
        if name.endswith(".txnindex"):
            path = f"flights-0/{name}"
            perform_writes(host.disk, [Write(path, host.disk.size(path), (b"x",))])
    host.open()
    host.log._segments.unload_indexes()  # the files are read again
    assert aborted(host, 0) == expected


def test_removed_indexes_are_all_rebuilt_at_start() -> None:
    host = Host(segment_bytes=500)
    expected = many_aborted(host, 20)
    active = max(name for name in host.files() if name.endswith(".log"))
    host.close()
    for name in host.files():
        is_index = name.endswith((".index", ".timeindex", ".txnindex"))
        if is_index and not name.startswith(active.removesuffix(".log")):
            host.disk.remove(f"flights-0/{name}")
    host.open()
    assert aborted(host, 0) == expected


def test_marker_fits_into_a_segment_smaller_than_itself() -> None:
    host = Host(segment_bytes=77)
    send(host)
    mark(host)
    assert host.log.last_stable_offset == host.log.high_watermark == 2


def test_new_batch_behind_a_duplicate_is_not_acknowledged() -> None:
    host = Host()
    host.write(plain(0))
    assert host.refused(plain(0) + plain(1)).code is OUT_OF_ORDER
    assert host.append(plain(0)).base_offset == 0
    assert host.append(plain(1)).base_offset == 1


def test_replay_of_many_transactions_takes_linear_time() -> None:
    """Quadratic time would be minutes: a replay has no high watermark that ends transactions."""
    producers = ProducerStateManager()
    for number in range(40_000):
        producers.record_batch(
            1, 0, number, 2 * number, 2 * number, is_transactional=True, seen_ms=NOW_MS
        )
        marker = TransactionMarkerRecord(is_commit=True, coordinator_epoch=0)
        producers.record_marker(1, 0, marker, 2 * number + 1, seen_ms=NOW_MS)
    assert producers.first_unstable_offset == 0
    producers.on_high_watermark(80_000)
    assert producers.first_unstable_offset is None


def test_index_file_has_the_format_of_kafka() -> None:
    host = Host()
    send(host, producer_id=7)
    send(host, producer_id=8)
    mark(host, producer_id=8, is_commit=False)
    host.close()
    content = host.disk.read("flights-0/00000000000000000000.txnindex", 0, 1000)
    fields = (0).to_bytes(2, "big"), *(n.to_bytes(8, "big") for n in (8, 1, 2, 0))
    assert content == b"".join(fields)


def test_segment_without_aborted_transaction_has_no_index_file() -> None:
    host = Host(segment_bytes=300)
    for n in range(6):
        send(host, n)
        mark(host)
    host.close()
    assert not [name for name in host.files() if name.endswith(".txnindex")]


def test_retention_removes_index_of_aborted_transactions() -> None:
    host = Host(segment_bytes=500, retention_ms=1000)
    many_aborted(host, 20)
    assert [name for name in host.files() if name.endswith(".txnindex")]
    host.now_ms += 10_000
    host.perform(host.log.apply_retention(host.now_ms))
    assert not [name for name in host.files() if name.endswith(".txnindex")]
    assert aborted(host, host.log.log_start_offset) == []


def test_small_fetch_lists_only_transactions_near_it() -> None:
    host = Host(segment_bytes=4000, index_interval_bytes=100)
    many_aborted(host, 200)
    assert len(aborted(host, 0, 200)) < 4
    assert len(aborted(host, host.log.end_offset - 3, 100)) < 4


def test_producer_with_open_transaction_does_not_expire() -> None:
    host = Host()
    send(host, producer_id=1)
    send(host, producer_id=2)
    mark(host, producer_id=2)
    host.log.producer_state.remove_expired(host.now_ms + 10**9)
    assert [one.producer_id for one in host.log.producer_state.summaries()] == [1]


def test_snapshot_keeps_transactions_in_order() -> None:
    host = Host()
    for producer_id in (3, 1, 2):
        send(host, producer_id=producer_id)
    mark(host, producer_id=1, coordinator_epoch=6)
    loaded = ProducerStateManager.load(host.log.producer_state.snapshot())
    assert loaded is not None
    assert loaded.first_unstable_offset == 0
    assert loaded.summaries() == host.log.producer_state.summaries()
    assert {one.producer_id: one.coordinator_epoch for one in loaded.summaries()}[1] == 6
