"""The compiled CRC-32C beside the package ``crc32c``."""

from __future__ import annotations

from random import Random

import crc32c
import pytest

CONTENT = memoryview(Random(1).randbytes(1 << 17))
#: With sizes around that from which on the interpreter's lock is released.
SIZES = (*range(20), 255, 256, 300, (1 << 15) - 1, 1 << 15, (1 << 15) + 1, 1 << 17)

compiled = pytest.importorskip("partage.wire.records._checksum")


@pytest.mark.parametrize("size", SIZES)
def test_compiled_checksum_equals_package(size: int) -> None:
    content = CONTENT[:size]
    expected = crc32c.crc32c(content)
    assert compiled.crc32c(content) == compiled.crc32c(bytes(content)) == expected
    assert compiled.crc32c(bytearray(content)) == expected


@pytest.mark.parametrize("at", [0, 1, 300, 1 << 16])
def test_checksum_continues_previous_one(at: int) -> None:
    whole = compiled.crc32c(CONTENT)
    assert compiled.crc32c(CONTENT[at:], compiled.crc32c(CONTENT[:at])) == whole


def test_checksum_of_text_is_refused() -> None:
    with pytest.raises(TypeError):
        compiled.crc32c("text")
