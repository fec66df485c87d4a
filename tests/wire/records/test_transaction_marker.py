"""Control batches that end a transaction."""

from __future__ import annotations

import pytest

from partage.wire.primitives import MalformedError
from partage.wire.records.batch import parse_header
from partage.wire.records.encoder import SimpleRecord, encode_batch
from partage.wire.records.transaction_marker import decode_marker, encode_marker


def control_batch(key: bytes, value: bytes) -> bytes:
    return encode_batch([SimpleRecord(key, value)], is_control=True, is_transactional=True)


@pytest.mark.parametrize("is_commit", [True, False])
def test_marker_survives_encoding(is_commit: bool) -> None:
    batch = encode_marker(7, 3, 9, is_commit=is_commit, timestamp_ms=123)
    header = parse_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    assert header.max_timestamp_ms == 123
    assert decode_marker(header, batch) == (is_commit, 9)


def test_marker_bytes_equal_kafka() -> None:
    """Key and value as in Kafka's EndTransactionMarker, for coordinator epoch 1."""
    batch = encode_marker(7, 3, 1, is_commit=True, timestamp_ms=0)
    assert batch.endswith(b"\x08" + b"\0\0\0\1" + b"\x0c" + b"\0\0" + b"\0\0\0\1" + b"\0")


def test_other_control_records_are_no_markers() -> None:
    leader_change = control_batch(b"\0\0\0\2", b"\0\0\0\0\0\0")
    assert decode_marker(parse_header(leader_change), leader_change) is None
    data = encode_batch([SimpleRecord(b"\0\0\0\1", b"\0\0\0\0\0\0")])
    assert decode_marker(parse_header(data), data) is None


@pytest.mark.parametrize(
    ("key", "value"), [(b"\0\0", b""), (b"", b"\0" * 6), (b"\0\0\0\1", b"\0\0\0")]
)
def test_incomplete_marker_refused(key: bytes, value: bytes) -> None:
    batch = control_batch(key, value)
    with pytest.raises(MalformedError, match="no complete"):
        decode_marker(parse_header(batch), batch)
