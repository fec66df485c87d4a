"""Floor 6: the command line."""

from __future__ import annotations

from partage.console.app import main

__all__ = ["main"]
