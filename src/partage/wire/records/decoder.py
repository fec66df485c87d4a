"""The record decoder: the compiled one if it was built, otherwise the pure Python one.

``DECODER`` names the one in use, for logs and metrics. The environment variable ``PARTAGE_DECODER``
(``native`` or ``plain``) selects one. With ``native`` the import fails if the compiled decoder was
not built. The functions are documented in `plain`.
"""

from __future__ import annotations

import os
from typing import Final

_wanted = os.environ.get("PARTAGE_DECODER") or "any"
if _wanted not in ("any", "native", "plain"):
    raise ImportError(f"PARTAGE_DECODER={_wanted!r} is not a decoder: use 'native' or 'plain'")

try:
    if _wanted == "plain":
        raise ModuleNotFoundError("the plain decoder was requested")
    from partage.wire.records._native import (
        check_records,
        decode_columns,
        decode_pairs,
        decode_records,
        pooled_buffer,
        scan,
        uninitialized_buffer,
    )

    _found = "native"
except ImportError:
    if _wanted == "native":
        raise
    from partage.wire.records.plain import (
        check_records,
        decode_columns,
        decode_pairs,
        decode_records,
        pooled_buffer,
        scan,
        uninitialized_buffer,
    )

    _found = "plain"

#: "native" or "plain".
DECODER: Final = _found

__all__ = [
    "DECODER",
    "check_records",
    "decode_columns",
    "decode_pairs",
    "decode_records",
    "pooled_buffer",
    "scan",
    "uninitialized_buffer",
]
