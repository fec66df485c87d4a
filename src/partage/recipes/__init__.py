"""Floor 5: what groups are good for, ready to use.

`LeaderElection` has exactly one of several processes active, `WorkerPool` spreads units of work
over processes and moves no more than must move; both on `partage.Membership`. `Processor` joins
topics partition by partition, `RedundantIndexer` keeps replicas of a search index; both on
`partage.Consumer`. `partage.recipes.sync` has what there is
for code without asyncio.
"""

from __future__ import annotations

from partage.assignors import CoPartitioningError
from partage.recipes.election import Leader, LeaderElection, Term
from partage.recipes.indexer import RedundantIndexer
from partage.recipes.pool import WorkerPool
from partage.recipes.processor import Processor
from partage.recipes.tasks import Task, TaskId

__all__ = [
    "CoPartitioningError",
    "Leader",
    "LeaderElection",
    "Processor",
    "RedundantIndexer",
    "Task",
    "TaskId",
    "Term",
    "WorkerPool",
]
