"""Compressed payloads of every codec, and their limits."""

from __future__ import annotations

import contextlib
import struct
from random import Random

import aiokafka.codec
import cramjam
import pyarrow as pa
import pytest

from partage.wire.primitives import MalformedError
from partage.wire.records.compression import compress, decompress

GZIP, SNAPPY, LZ4, ZSTD = CODECS = (1, 2, 3, 4)
ARROW_NAMES = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
#: Sizes around those of the frames' blocks: 32 KiB for snappy, 64 KiB for lz4, 128 KiB for zstd.
SIZES = (0, 1, 100, 32_767, 32_769, 65_537, 131_073, 400_000)
EACH_CODEC = pytest.mark.parametrize("codec", CODECS, ids=ARROW_NAMES.get)


def payloads(size: int) -> list[bytes]:
    rng = Random(size)
    return [bytes(size), rng.randbytes(size), (rng.randbytes(50) * (size // 50 + 1))[:size]]


@pytest.mark.parametrize("codec", [0, *CODECS])
@pytest.mark.parametrize("size", SIZES)
def test_decompress_restores_payload_within_limit(codec: int, size: int) -> None:
    for payload in payloads(size):
        packed = compress(codec, payload)
        assert decompress(codec, packed, size) == payload
        assert decompress(codec, memoryview(b"--" + packed)[2:], size + 1) == payload
        if codec == LZ4:
            linked = bytes(cramjam.lz4.compress(payload))
            assert not linked[4] & 0x20
            assert decompress(codec, linked, size) == payload
        if size:
            with pytest.raises(MalformedError, match=f"more than {size - 1} bytes"):
                decompress(codec, packed, size - 1)


@EACH_CODEC
def test_payloads_are_compatible_with_other_clients(codec: int) -> None:
    name = ARROW_NAMES[codec]
    for payload in payloads(200_000):
        packed = compress(codec, payload)
        if codec != SNAPPY:  # Arrow's is raw
            assert pa.decompress(packed, len(payload), codec=name, asbytes=True) == payload
        theirs = pa.compress(payload, codec=name, asbytes=True)
        assert decompress(codec, theirs, len(payload)) == payload
        assert getattr(aiokafka.codec, f"{name}_decode")(packed) == payload
        theirs = bytes(getattr(aiokafka.codec, f"{name}_encode")(payload))
        assert decompress(codec, theirs, len(payload)) == payload


def test_snappy_is_xerial_and_lz4_blocks_are_independent() -> None:
    assert compress(SNAPPY, b"abc").startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    flags = compress(LZ4, bytes(200_000))[4]
    assert flags >> 6 == 1, "version"
    assert flags & 0x20, "blocks are independent"


@EACH_CODEC
def test_concatenated_frames(codec: int) -> None:
    first, second = compress(codec, b"a" * 1000), compress(codec, b"b" * 1000)
    if codec in (LZ4, ZSTD):
        joined = first + struct.pack("<II", 0x184D2A57, 3) + b"..." + second
        assert decompress(codec, joined, 2000) == b"a" * 1000 + b"b" * 1000
        with pytest.raises(MalformedError, match="more than"):
            decompress(codec, joined, 1999)
    else:
        with pytest.raises(MalformedError):
            decompress(codec, first + second, 2000)


@EACH_CODEC
def test_truncated_or_extended_payload_is_malformed(codec: int) -> None:
    payload = Random(1).randbytes(3000) * 10
    packed = compress(codec, payload)
    for size in {*range(30), *range(0, len(packed), 7)}:
        if codec == SNAPPY and size == 16:
            continue  # a valid frame with a header and no blocks
        with pytest.raises(MalformedError):
            decompress(codec, packed[:size], 100_000)
    with pytest.raises(MalformedError):
        decompress(codec, packed + b"x", 100_000)


@pytest.mark.parametrize("codec", [5, 7, -1])
def test_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(MalformedError, match="unknown"):
        decompress(codec, b"", 10)
    with pytest.raises(ValueError, match="unknown"):
        compress(codec, b"")


def test_false_declared_size_is_malformed() -> None:
    lying = bytearray(compress(ZSTD, bytes(300)))
    assert lying[4] >> 6 == 1, "a content size of two bytes"
    lying[5:7] = b"\xff\xff"
    with pytest.raises(MalformedError):
        decompress(ZSTD, lying, 1 << 20)
    with pytest.raises(MalformedError, match="declares a content of"):
        decompress(SNAPPY, b"\xff\xff\xff\xff\x07" + b"abc", 1 << 31)
    with pytest.raises(MalformedError, match="more than"):
        decompress(SNAPPY, b"\xff\xff\xff\xff\x07" + b"abc", 1 << 20)
    window = b"\x28\xb5\x2f\xfd\x00" + bytes([17 << 3]) + b"\x01\x00\x00"
    assert decompress(ZSTD, window, 1 << 27) == b""
    with pytest.raises(MalformedError, match="window of 134217728 bytes"):
        decompress(ZSTD, window, 1 << 20)


def test_random_damage_is_malformed_or_harmless() -> None:
    rng = Random(7)
    for _ in range(4000):
        codec = rng.choice(CODECS)
        payload = (rng.randbytes(rng.randrange(1, 60)) * 300)[: rng.randrange(1, 9000)]
        if codec == GZIP or rng.random() < 0.7:
            packed = bytearray(compress(codec, payload))
        else:
            packed = bytearray(pa.compress(payload, codec=ARROW_NAMES[codec], asbytes=True))
        for _ in range(rng.randrange(1, 4)):
            packed[rng.randrange(min(len(packed), 40))] = rng.randrange(256)
        with contextlib.suppress(MalformedError):
            assert len(decompress(codec, bytes(packed), 20_000)) <= 20_000


def test_cramjam_never_writes_past_full_buffer() -> None:
    """The limits for lz4 and zstd depend on this."""
    for module, codec in ((cramjam.lz4, LZ4), (cramjam.zstd, ZSTD)):
        packed = compress(codec, Random(2).randbytes(5000))
        for room in (0, 1, 4999):
            out = bytearray(room)
            with pytest.raises(cramjam.DecompressionError, match="whole buffer"):
                module.decompress_into(packed, out)
            assert len(out) == room
