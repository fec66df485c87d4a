"""Memory limit of decompression, in a separate interpreter with little spare memory."""

from __future__ import annotations

import subprocess
import sys


def test_bombs_are_refused_before_allocation() -> None:
    """In a process with little spare memory, payloads that decompress to a gigabyte or more."""
    script = BOMBS.format(path=repr(sys.path))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["gzip", "snappy", "xerial", "lz4", "zstd", "zstd-rle"], done


BOMBS = """
import sys
sys.path[:] = {path}
import resource, struct, zlib
import cramjam
from partage.wire.primitives import MalformedError
from partage.wire.records.compression import decompress

MEGABYTE = 1 << 20
deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
segment = deflate.compress(bytes(16 * MEGABYTE)) + deflate.flush(zlib.Z_FULL_FLUSH)
gzip = b"\\x1f\\x8b\\x08" + bytes(6) + b"\\xff" + segment * 64

raw = bytes(cramjam.snappy.compress_raw(bytes(40 * MEGABYTE)))
block = bytes(cramjam.snappy.compress_raw(bytes(32768)))
xerial = b"\\x82SNAPPY\\x00" + struct.pack(">ii", 1, 1)
xerial += (struct.pack(">i", len(block)) + block) * 32768

block = bytes(cramjam.lz4.compress_block(bytes(4 * MEGABYTE), store_size=False))
lz4 = b"\\x04\\x22\\x4d\\x18\\x60\\x70\\x73"
lz4 += (struct.pack("<I", len(block)) + block) * 256 + bytes(4)

zstd = bytes(cramjam.zstd.compress(bytes(64 * MEGABYTE)))
head = b"\\x28\\xb5\\x2f\\xfd\\x00\\x38"  # a window of 128 KiB, no content size
repeated = struct.pack("<I", 131072 << 3 | 1 << 1)[:3] + b"."
rle = head + repeated * 8192 + b"\\x01\\x00\\x00"

with open("/proc/self/statm") as statm:
    used = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 24 * MEGABYTE,) * 2)
bombs = dict(gzip=(1, gzip), snappy=(2, raw), xerial=(2, xerial), lz4=(3, lz4), zstd=(4, zstd))
for name, (codec, bomb) in [*bombs.items(), ("zstd-rle", (4, rle))]:
    try:
        decompress(codec, bomb, 4 * MEGABYTE)
    except MalformedError as error:
        assert "more than" in str(error), (name, error)
        print(name)
"""
