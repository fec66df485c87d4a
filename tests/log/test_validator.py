"""Validation of produced batches, and the errors for invalid ones."""

from __future__ import annotations

import pytest

from partage.log.validator import RECORD_ERRORS_MAX
from partage.model.errors import ErrorCode
from partage.wire.records.batch import Compression
from partage.wire.records.encoder import SimpleRecord, encode_batch

from .partition_host import NOW_MS, Host, batch

SOUND = batch(b"a", b"b")
HOUR_MS = 3_600_000


def changed(at: int, to: bytes, payload: bytes = SOUND) -> bytes:
    return payload[:at] + to + payload[at + len(to) :]


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (SOUND[:60], ErrorCode.INVALID_RECORD),
        (SOUND[:-1], ErrorCode.CORRUPT_MESSAGE),
        (SOUND + SOUND[:70], ErrorCode.CORRUPT_MESSAGE),
        (changed(16, b"\1"), ErrorCode.INVALID_RECORD),  # format version
        (changed(70, b"\1"), ErrorCode.CORRUPT_MESSAGE),
        (changed(8, b"\0\0\0\0"), ErrorCode.INVALID_RECORD),  # length
        (changed(8, b"\x7f\xff\xff\xff"), ErrorCode.CORRUPT_MESSAGE),
        (changed(0, b"\0\0\0\0\0\0\0\1"), ErrorCode.INVALID_RECORD),  # base offset
        (batch(b"a", producer=(1, 0, -1)), ErrorCode.INVALID_RECORD),
        (encode_batch([SimpleRecord(None, b"x")], is_control=True), ErrorCode.INVALID_RECORD),
        (encode_batch([SimpleRecord(None, b"x")], last_offset_delta=4), ErrorCode.INVALID_RECORD),
        (encode_batch([], last_offset_delta=0), ErrorCode.INVALID_RECORD),
        (
            encode_batch(
                [SimpleRecord(None, b"x")],
                producer_id=1,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            ),
            ErrorCode.INVALID_TXN_STATE,
        ),
        (
            encode_batch([SimpleRecord(None, b"x")], append_time_ms=NOW_MS),
            ErrorCode.INVALID_TIMESTAMP,
        ),
        (batch(b"x", at_ms=NOW_MS + HOUR_MS + 1), ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_invalid_batch_is_refused(payload: bytes, code: ErrorCode) -> None:
    host = Host()
    refusal = host.refused(payload)
    assert refusal.code is code
    assert refusal.message
    assert host.append(SOUND).base_offset == 0


def test_batch_above_max_message_bytes_is_refused() -> None:
    host = Host(max_message_bytes=len(SOUND))
    host.append(SOUND)
    assert host.refused(batch(b"a", b"bc")).code is ErrorCode.MESSAGE_TOO_LARGE
    host.append(SOUND + SOUND)


def test_request_above_segment_bytes_is_refused() -> None:
    host = Host(segment_bytes=2 * len(SOUND))
    host.append(SOUND + SOUND)
    assert host.refused(SOUND * 3).code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_first_fault_refuses_whole_request() -> None:
    assert Host().refused(SOUND + changed(70, b"\1")).code is ErrorCode.CORRUPT_MESSAGE


def test_timestamps_must_be_within_topic_limits() -> None:
    host = Host(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=10)
    host.append(batch(b"x", at_ms=NOW_MS - 1000))
    host.append(batch(b"x", at_ms=NOW_MS + 10))
    host.append(batch(b"x", at_ms=-1))
    assert host.refused(batch(b"x", at_ms=NOW_MS - 1001)).code is ErrorCode.INVALID_TIMESTAMP
    assert host.refused(batch(b"x", at_ms=NOW_MS + 11)).code is ErrorCode.INVALID_TIMESTAMP


def test_compacted_topic_requires_keys() -> None:
    host = Host(cleanup_policy="compact")
    host.append(batch((b"k", b"v")))
    host.append(batch((b"k", None), compression=Compression.GZIP))
    assert host.refused(batch((b"k", b"v"), b"no key")).code is ErrorCode.INVALID_RECORD
    zipped = batch(b"no key", compression=Compression.LZ4)
    assert host.refused(zipped).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Compression))
def test_keyless_records_are_listed_by_index(codec: Compression) -> None:
    """KIP-467: a producer fails these records only, and can send the others again."""
    host = Host(cleanup_policy="compact,delete")
    refusal = host.refused(batch((b"k", b"v"), b"a", (b"l", b"w"), b"b", compression=codec))
    assert refusal.code is ErrorCode.INVALID_RECORD
    assert [error.index for error in refusal.record_errors] == [1, 3]
    assert all("key" in error.message for error in refusal.record_errors)


def test_record_errors_count_from_first_batch_of_request() -> None:
    host = Host(cleanup_policy="compact")
    refusal = host.refused(batch((b"k", b"v"), (b"l", b"w")) + batch((b"m", b"x"), b"a"))
    assert [error.index for error in refusal.record_errors] == [3]


def test_untimely_records_are_listed_by_index() -> None:
    """One of them makes the error INVALID_TIMESTAMP, as in Kafka."""
    host = Host(cleanup_policy="compact", message_timestamp_before_max_ms=1000)
    times = [NOW_MS, NOW_MS - 1001, -1, NOW_MS + HOUR_MS + 1]
    records = [SimpleRecord(b"k", b"v", timestamp_ms=at_ms) for at_ms in times]
    records.append(SimpleRecord(None, b"v", timestamp_ms=NOW_MS))
    refusal = host.refused(encode_batch(records, compression=Compression.ZSTD))
    assert refusal.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.index for error in refusal.record_errors] == [1, 3, 4]
    assert str(NOW_MS - 1001) in refusal.record_errors[0].message


def test_records_of_batch_that_decompresses_to_megabytes_are_not_listed() -> None:
    """A few KB could decompress to 128 MiB on the event loop."""
    payload = batch(bytes(9 << 20), at_ms=NOW_MS + 2 * HOUR_MS, compression=Compression.ZSTD)
    refusal = Host().refused(payload)
    assert (refusal.code, refusal.record_errors) == (ErrorCode.INVALID_TIMESTAMP, ())
    assert str(NOW_MS + 2 * HOUR_MS) in refusal.message


def test_too_many_invalid_records_are_not_listed() -> None:
    """A small compressed batch must not cause a response of megabytes."""
    host = Host(cleanup_policy="compact")
    refusal = host.refused(batch(*[b""] * (RECORD_ERRORS_MAX + 1), compression=Compression.ZSTD))
    assert (refusal.code, refusal.record_errors) == (ErrorCode.INVALID_RECORD, ())


@pytest.mark.parametrize("codec", list(Compression))
def test_every_codec_is_stored_unchanged(codec: Compression) -> None:
    host = Host()
    host.write(batch(b"a" * 100, b"b" * 100, compression=codec))
    assert host.values() == [b"a" * 100, b"b" * 100]


OTHER_TYPE = b"\0\0\0\2"  # a control record that is no transaction marker


def test_broker_may_append_control_batch() -> None:
    host = Host()
    host.append(encode_batch([SimpleRecord(OTHER_TYPE, b"x")], is_control=True), from_client=False)
    cut_off = encode_batch([SimpleRecord(b"\0", b"x")], is_control=True)
    refusal = host.log.append(cut_off, at_ms=NOW_MS, from_client=False)
    assert getattr(refusal, "code", None) is ErrorCode.INVALID_RECORD
    damaged = changed(70, b"\1")
    refusal = host.log.append(damaged, at_ms=NOW_MS, from_client=False)
    assert getattr(refusal, "code", None) is ErrorCode.CORRUPT_MESSAGE


def test_broker_batch_may_exceed_max_message_bytes() -> None:
    """No topic config may block the coordinator, which limits the size of its records itself."""
    host = Host(max_message_bytes=100)
    large = encode_batch([SimpleRecord(b"k", bytes(1_000))])
    refusal = host.log.append(large, at_ms=NOW_MS)
    assert getattr(refusal, "code", None) is ErrorCode.MESSAGE_TOO_LARGE
    host.append(large, from_client=False)
