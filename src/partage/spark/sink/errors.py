"""The error of a write."""

from __future__ import annotations


class WriteError(RuntimeError):
    """A broker rejected a record or a transaction, or did not acknowledge it; with the reason."""
