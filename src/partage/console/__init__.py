"""Command line; the top layer."""

from __future__ import annotations

from partage.console.app import main

__all__ = ["main"]
