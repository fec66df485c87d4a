"""Recipes for code without asyncio: ``from partage.recipes.blocking import Processor``."""

from __future__ import annotations

from partage.recipes.indexer_blocking import RedundantIndexer
from partage.recipes.processor_blocking import Processor

__all__ = ["Processor", "RedundantIndexer"]
