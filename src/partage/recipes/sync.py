"""Blocking recipes: ``from partage.recipes.sync import LeaderElection, Processor``.

All other names are those of `partage.recipes`.
"""

from __future__ import annotations

from partage.recipes.blocking_recipe import Term
from partage.recipes.election import Leader
from partage.recipes.sync_election import LeaderElection
from partage.recipes.sync_indexer import RedundantIndexer
from partage.recipes.sync_pool import WorkerPool
from partage.recipes.sync_processor import Processor
from partage.recipes.sync_single_writer import SingleWriter

__all__ = [
    "Leader",
    "LeaderElection",
    "Processor",
    "RedundantIndexer",
    "SingleWriter",
    "Term",
    "WorkerPool",
]
