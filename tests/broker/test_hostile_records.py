"""Invalid records: they are stored unchanged or refused, without unpacking a bomb."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from partage.wire.records.batch import Compression
from partage.wire.records.compression import compress

from .peak_memory import PeakMemory
from .requests import batch, create, offset_range, produce

MB = 1 << 20
BOMB = 16 * MB


@pytest.mark.parametrize("codec", [c for c in Compression if c])
def test_decompression_bomb_is_stored_compressed(raw, codec):
    """CVE-2026-111073, CVE-2023-34455: a topic that is not compacted stores compressed batches
    unread.
    """
    create(raw, "t")
    packed = compress(codec, bytes(BOMB))
    made = wrapped(packed, codec)
    with PeakMemory() as peak:
        assert produce(raw, "t", made).error_code == 0
    assert peak.bytes < 4 * len(made) + 2 * MB


@pytest.mark.parametrize("codec", [c for c in Compression if c])
def test_decompression_bomb_in_compacted_topic_is_refused(raw, codec):
    """A compacted topic decodes the records, within limits, and refuses invalid ones."""
    create(raw, "table", cleanup_policy="compact")
    made = wrapped(compress(codec, bytes(BOMB)), codec)
    with PeakMemory() as peak:
        assert produce(raw, "table", made).error_code in (10, 87)
    assert peak.bytes < 6 * BOMB  # the records twice, and columns for keys and values
    assert produce(raw, "table", batch(b"k", compression=codec)).error_code == 0
    assert offset_range(raw, "table") == (0, 1)


@pytest.mark.parametrize("codec", [c for c in Compression if c])
@pytest.mark.parametrize("payload", [b"", b"\xff" * 40, b"\x82SNAPPY\x00" + b"\x7f" * 60])
def test_corrupt_compression_in_compacted_topic_is_refused(raw, codec, payload):
    """CVE-2023-34455: lengths inside the framing of the codecs."""
    create(raw, "table", cleanup_policy="compact")
    assert produce(raw, "table", wrapped(payload, codec)).error_code == 87
    assert offset_range(raw, "table") == (0, 0)


def wrapped(payload: bytes, codec: int) -> bytes:
    """Return a batch that claims to hold one record in ``payload``."""
    made = bytearray(batch(b"x", compression=codec)[:61] + payload)
    struct.pack_into(">i", made, 8, len(made) - 12)
    return sealed(bytes(made))


def sealed(made: bytes) -> bytes:
    return made[:17] + struct.pack(">I", crc32c(made[21:])) + made[21:]
