"""Ready-made applications of consumer groups.

`LeaderElection` keeps exactly one of several processes active. `SingleWriter` adds transactions, so
that the broker rejects what an earlier process still writes. `WorkerPool` distributes units of
work over processes and moves as few as possible. Both use `partage.Membership`. `Processor` joins
topics partition by partition, and `RedundantIndexer` maintains replicas of a search index. Both use
`partage.Consumer`. `partage.recipes.sync` has the blocking variants. `partage.recipes.search`
searches the indexes.
"""

from __future__ import annotations

from partage.assignors import CoPartitioningError
from partage.client.config import DynamicMemberConfig
from partage.recipes.config import IndexerConfig, ProcessorConfig
from partage.recipes.connectors import Connector
from partage.recipes.election import Leader, LeaderElection, Term
from partage.recipes.indexer import RedundantIndexer
from partage.recipes.pool import WorkerPool
from partage.recipes.processor import Processor
from partage.recipes.search_index import Document, IndexStore, SearchIndex
from partage.recipes.single_writer import SingleWriter
from partage.recipes.tasks import Task, TaskId

__all__ = [
    "CoPartitioningError",
    "Connector",
    "Document",
    "DynamicMemberConfig",
    "IndexStore",
    "IndexerConfig",
    "Leader",
    "LeaderElection",
    "Processor",
    "ProcessorConfig",
    "RedundantIndexer",
    "SearchIndex",
    "SingleWriter",
    "Task",
    "TaskId",
    "Term",
    "WorkerPool",
]
