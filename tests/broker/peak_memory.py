"""Measurement of allocated memory."""

from __future__ import annotations

import gc
import tracemalloc


class PeakMemory:
    """Maximum memory that was allocated inside a ``with`` block, in bytes."""

    bytes = 0

    def __enter__(self):
        gc.collect()
        tracemalloc.start()
        return self

    def __exit__(self, *details):
        self.bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
