"""Random damage to record batches, and a check that both decoders agree on the result."""

from __future__ import annotations

from random import Random
from types import ModuleType
from typing import Any

from partage.wire.primitives import MalformedError, encode_varint
from partage.wire.records.columns import OFFSET_MAX

#: Replacements of a byte: limits of ranges, varint continuations, nulls.
BYTES = (0x00, 0x01, 0x02, 0x03, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
#: Insertions: the varints of -1, -2, 2^31-1, -2^31, 2^63-1, and too wide ones.
PUSHED = (
    *(encode_varint(n) for n in (-1, -2, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))),
    b"\xff\xff\xff\xff\xff",
    b"\xff" * 10,
    b"\x80" * 12,
)


def outcome(call: Any) -> Any:
    """Return the result of a call, or `MalformedError`; any other exception fails the test."""
    try:
        return call()
    except MalformedError:
        return MalformedError


def agree(both: list[ModuleType], blob: bytes, *, verify_crc: bool) -> Any:
    """Run every function of the contract on both modules; return the result of decode_columns."""
    columns = None
    options = {"verify_crc": verify_crc, "decompressed_max": 1 << 18}
    for with_headers, aborted in ((True, None), (False, None), (True, [(1, 0), (2, 5)])):
        results = [
            outcome(
                lambda decoder=decoder, with_headers=with_headers, aborted=aborted: (
                    decoder.decode_columns(
                        blob,
                        from_offset=1,
                        to_offset=OFFSET_MAX,
                        with_headers=with_headers,
                        read_committed_aborted=aborted,
                        **options,
                    )
                )
            )
            for decoder in both
        ]
        assert all(result == results[0] for result in results)
        columns = columns or results[0]
    for name in ("decode_records", "decode_pairs"):
        results = [
            outcome(lambda decoder=decoder, name=name: getattr(decoder, name)(blob, **options))
            for decoder in both
        ]
        assert all(result == results[0] for result in results)
    scans = [decoder.scan(blob, verify_crc=verify_crc) for decoder in both]
    assert all(found == scans[0] for found in scans)
    checks = [
        outcome(lambda decoder=decoder: decoder.check_records(blob[61:], 3)) for decoder in both
    ]
    assert len(set(checks)) == 1
    return columns


def damaged(rng: Random, blob: bytes) -> bytes:
    out = bytearray(blob)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(out))
        match rng.randrange(6):
            case 0:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[at] = rng.choice(BYTES)
            case 2:
                pushed = rng.choice(PUSHED)
                out[at : at + len(pushed)] = pushed
            case 3:
                out[at:at] = rng.choice(PUSHED)
            case 4:
                del out[at : at + rng.randrange(1, 9)]
            case _:
                # A whole header field of the first batch.
                start, size = rng.choice(((8, 4), (21, 2), (23, 4), (27, 8), (35, 8), (57, 4)))
                if len(out) > 61:
                    out[start : start + size] = rng.choice((b"\x00", b"\x7f", b"\xff")) * size
        if not out:
            out += b"\x00"
    return bytes(out)
