"""Properties of every message in every version."""

from __future__ import annotations

from random import Random

import pytest

from partage.wire import codec
from partage.wire.codec.layout import message_layout
from partage.wire.primitives import MalformedError
from partage.wire.types import Message

from .random_messages import BY_MESSAGE, Case, random_message

EACH_MESSAGE = pytest.mark.parametrize(
    "versions", BY_MESSAGE, ids=lambda cases: f"{cases[0].api.name}-{cases[0].side}"
)


def read(case: Case, raw: bytes) -> Message | None:
    """Decode ``raw``; return None if it is malformed. Any other exception is a failure."""
    try:
        return case.decode(raw)
    except MalformedError:
        return None


@EACH_MESSAGE
def test_decoded_message_equals_original(versions: list[Case]) -> None:
    for case in versions:
        rng = case.rng("identity")
        for _ in range(3):
            message = random_message(case, rng)
            assert case.decode(case.encode(message)) == message, case


@EACH_MESSAGE
def test_message_decodes_at_any_position(versions: list[Case]) -> None:
    for case in versions:
        message = random_message(case, case.rng("buffers"))
        frame = case.encode(message)
        decode = codec.decoder(case.cls, case.version, case.flexible)
        around = b"abc" + frame + b"\xff\xff"
        for buf in (bytearray(around), memoryview(around)):
            assert decode(buf, 3) == (message, 3 + len(frame)), case


@EACH_MESSAGE
def test_every_truncation_is_malformed(versions: list[Case]) -> None:
    for case in versions:
        frame = case.encode(random_message(case, case.rng("truncation")))
        # Long frames are truncated at every byte of their first and last part only.
        for length in {*range(min(len(frame), 300)), *range(max(0, len(frame) - 50), len(frame))}:
            assert read(case, frame[:length]) is None, f"{case} cut at {length}"


@EACH_MESSAGE
def test_damaged_bytes_are_a_message_or_malformed(versions: list[Case]) -> None:
    for case in versions:
        rng = case.rng("damage")
        frame = case.encode(random_message(case, rng))
        for _ in range(25):
            message = read(case, damaged(frame, rng))
            if message is not None:
                assert case.decode(case.encode(message)) == message, case


@EACH_MESSAGE
def test_random_bytes_are_a_message_or_malformed(versions: list[Case]) -> None:
    for case in versions:
        rng = case.rng("noise")
        for size in (1, 3, 10, 40, 100):
            read(case, rng.randbytes(size))


@EACH_MESSAGE
def test_fields_of_other_versions_keep_their_defaults(versions: list[Case]) -> None:
    for case in versions:
        message = case.decode(case.encode(random_message(case, case.rng("defaults"))))
        shape = message_layout(case.cls, case.version, case.flexible)
        present = {field.name for field in (*shape.fields, *shape.tagged)}
        bare = case.cls(**{field.name: getattr(message, field.name) for field in shape.fields})
        for name in set(case.cls.__struct_fields__) - present:
            assert getattr(message, name) == getattr(bare, name), f"{case}: {name}"


def damaged(frame: bytes, rng: Random) -> bytes:
    """Return ``frame`` with one to three faults."""
    raw = bytearray(frame)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(raw) + 1)
        match rng.randrange(5):
            case 0:
                raw[at:at] = rng.randbytes(rng.randint(1, 4))
            case 1:
                del raw[at : at + rng.randint(1, 4)]
            case 2:
                raw[at : at + 1] = rng.choice((b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff"))
            case 3:
                raw[at : at + 4] = rng.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe"))
            case 4:
                raw[at : at + 1] = b"\xff\xff\xff\xff\x07"
    return bytes(raw)
