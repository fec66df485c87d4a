"""Floor 5: what groups are good for beside consuming, ready to use.

`LeaderElection` has exactly one of several processes active, `WorkerPool` spreads units of work
over processes and moves no more than must move. Both on `partage.Membership`.
"""

from __future__ import annotations

from partage.recipes.election import Leader, LeaderElection, Term
from partage.recipes.pool import WorkerPool

__all__ = ["Leader", "LeaderElection", "Term", "WorkerPool"]
