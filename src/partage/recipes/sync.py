"""Blocking recipes: ``from partage.recipes.sync import Processor``."""

from __future__ import annotations

from partage.recipes.sync_indexer import RedundantIndexer
from partage.recipes.sync_processor import Processor

__all__ = ["Processor", "RedundantIndexer"]
