"""Compaction of transactions: data of aborted ones, markers, and open transactions."""

from __future__ import annotations

from partage.log.segments.batch_reader import read_batches
from partage.wire.records.batch import BatchHeader, whole_batches
from partage.wire.records.encoder import SimpleRecord, encode_batch
from partage.wire.records.transaction_marker import decode_marker

from .partition_host import DIRECTORY, NOW_MS, Host
from .transactional import aborted, mark, verified

DELETE_RETENTION_MS = 1000


def compacted_host(delete_retention_ms: int = DELETE_RETENTION_MS) -> Host:
    return Host(
        segment_bytes=400,
        cleanup_policy="compact",
        delete_retention_ms=delete_retention_ms,
        min_cleanable_dirty_ratio=0.01,
    )


def put(host: Host, key: bytes, value: bytes, *, producer_id: int = 1, sequence: int = 0) -> int:
    """Append one record in a transaction; return its offset."""
    payload = encode_batch(
        [SimpleRecord(key, value, timestamp_ms=NOW_MS)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )
    guard = verified(host, producer_id, 0, sequence)
    appended = host.append(payload, guard=guard)
    host.flush()
    return appended.base_offset


def fill(host: Host, start: int = 0, count: int = 12) -> None:
    """Append records with other keys, so that the segments before them are closed."""
    for n in range(start, start + count):
        host.write(encode_batch([SimpleRecord(b"fill%d" % n, b"." * 60, timestamp_ms=NOW_MS)]))


def headers(host: Host) -> list[BatchHeader]:
    content = host.fetch(host.log.log_start_offset)
    return [header for _, header in whole_batches(content)]


def markers(host: Host) -> list[int]:
    return [header.base_offset for header in headers(host) if header.is_control]


def values_of(host: Host, key: bytes) -> list[bytes | None]:
    return [value for _, _, at, value, _ in host.records() if at == key]


def forget_producers(host: Host) -> None:
    """Let the producers expire, so that compaction need not keep their last batches."""
    host.now_ms += 10**8
    host.log.producer_state.remove_expired(host.now_ms)


def test_data_of_aborted_transaction_is_dropped() -> None:
    host = compacted_host()
    host.write(encode_batch([SimpleRecord(b"k", b"old", timestamp_ms=NOW_MS)]))
    put(host, b"k", b"aborted")
    mark(host, is_commit=False)
    fill(host)
    assert host.compact() is not None
    assert values_of(host, b"k") == [b"old"]
    assert aborted(host, 0) == [(1, 1)]


def test_record_of_committed_transaction_supersedes_an_older_one() -> None:
    host = compacted_host()
    host.write(encode_batch([SimpleRecord(b"k", b"old", timestamp_ms=NOW_MS)]))
    put(host, b"k", b"new")
    mark(host)
    fill(host)
    host.compact()
    assert values_of(host, b"k") == [b"new"]


def test_segments_from_the_stable_offset_on_are_not_compacted() -> None:
    host = compacted_host()
    fill(host)
    start = put(host, b"k", b"first")
    put(host, b"k", b"second", sequence=1)
    fill(host)
    plan = host.log.plan_compaction(host.now_ms)
    assert plan is not None
    assert plan.end_offset <= start
    host.log.abandon_compaction()
    host.compact()
    assert values_of(host, b"k") == [b"first", b"second"]
    mark(host)
    fill(host, 20)
    host.compact()
    assert values_of(host, b"k") == [b"second"]


def test_marker_stays_for_the_retention_after_its_data() -> None:
    host = compacted_host()
    put(host, b"k", b"aborted")
    marker = mark(host, is_commit=False).base_offset
    fill(host)
    forget_producers(host)
    host.compact()  # drops the data
    assert [one.base_offset for one in headers(host)][:2] == [marker, marker + 1]
    fill(host)
    host.compact()  # sees a marker without data
    fill(host)
    host.now_ms += DELETE_RETENTION_MS - 1
    host.compact()
    assert markers(host) == [marker]
    assert decode_marker_at(host, marker)
    host.now_ms += 1
    fill(host)
    host.compact()
    assert markers(host) == []
    assert aborted(host, 0) == []
    assert not [name for name in host.files() if name.endswith(".txnindex")]


def test_marker_stays_with_an_endless_retention() -> None:
    host = compacted_host(delete_retention_ms=2**63 - 1)
    put(host, b"k", b"aborted")
    marker = mark(host, is_commit=False).base_offset
    for _ in range(3):
        fill(host)
        forget_producers(host)
        host.compact()
    assert markers(host) == [marker]
    assert decode_marker_at(host, marker)


def decode_marker_at(host: Host, offset: int) -> bool:
    """True if a valid marker is at this offset, with the time of its append."""
    path = f"{DIRECTORY}/{0:020}.log"
    for batch in read_batches(host.disk, path, host.disk.size(path)):
        if batch.header.base_offset == offset:
            marker = decode_marker(batch.header, batch.content)
            assert batch.header.max_timestamp_ms == NOW_MS
            return marker is not None and not marker.is_commit
    return False


def test_marker_of_committed_transaction_stays_while_data_exists() -> None:
    host = compacted_host()
    put(host, b"k", b"kept")
    marker = mark(host).base_offset
    for round_number in range(3):
        fill(host)
        forget_producers(host)
        host.compact()
        assert markers(host) == [marker], round_number
    assert values_of(host, b"k") == [b"kept"]


def test_marker_that_fences_a_producer_is_kept() -> None:
    host = compacted_host()
    marker = mark(host, producer_id=5, epoch=3).base_offset
    for _ in range(3):
        fill(host)
        host.now_ms += 10 * DELETE_RETENTION_MS
        host.compact()
    assert markers(host) == [marker]
    host.open(cuts_nothing=True)
    host.close()


def test_damaged_index_of_compacted_transactions_is_rebuilt() -> None:
    host = compacted_host()
    for sequence in range(6):
        put(host, b"k%d" % sequence, b"v", sequence=sequence)
        mark(host, is_commit=sequence % 2 == 0)
    expected = aborted(host, 0)
    fill(host)
    host.compact()
    assert aborted(host, 0) == expected
    for name in host.files():
        if name.endswith(".txnindex"):
            host.disk.truncate(f"{DIRECTORY}/{name}", 3)
    host.open()
    # The compaction has dropped the data of the others.
    assert aborted(host, 0) == expected[-1:]
    assert [values_of(host, b"k%d" % n) for n in range(6)] == [[b"v"], [], [b"v"], [], [b"v"], []]
