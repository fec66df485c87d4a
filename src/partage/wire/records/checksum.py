"""CRC-32C (Castagnoli), the checksum of record batches and of a broker's files.

The compiled module is used if it was built, otherwise the package ``crc32c``. The import of that
package takes 12 ms, a tenth of a broker's start, because it reads its version from its metadata.
"""

from __future__ import annotations

try:
    from partage.wire.records._checksum import crc32c
except ImportError:
    from crc32c import crc32c

__all__ = ["crc32c"]
