"""Choice between the compiled CRC-32C and the package ``crc32c``, in a separate interpreter."""

from __future__ import annotations

import subprocess
import sys

from partage.wire.records.checksum import crc32c

FALLBACK = """
import sys
sys.modules["partage.wire.records._checksum"] = None
from partage.wire.records.checksum import crc32c
print(crc32c.__module__, crc32c(b"partage"), crc32c(b"age", crc32c(b"part")))
"""


def test_checksum_without_compiled_module_uses_package() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FALLBACK], capture_output=True, text=True, check=True
    )
    expected = str(crc32c(b"partage"))
    assert ran.stdout.split() == ["crc32c._crc32c", expected, expected]
