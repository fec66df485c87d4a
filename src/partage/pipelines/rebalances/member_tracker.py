"""A member as of the last event, and what it waits for."""

from __future__ import annotations

from partage.pipelines.rebalances.rows import MemberRow


class MemberTracker:
    """A member, as of the last event."""

    def __init__(self, row: MemberRow) -> None:
        self.row = row
        self.has_partitions = False  # by its last assignment
        self.waiting_since: int | None = None
        self.stopped_since: int | None = None

    def stop_waiting(self, at: int) -> None:
        """It has its assignment, or is gone: it waits no longer."""
        # Clocks of two brokers may disagree: then it is known only that it was no long time.
        if self.waiting_since is not None:
            self.row.waited_ms += max(at - self.waiting_since, 0)
        if self.stopped_since is not None:
            self.row.stood_still_ms += max(at - self.stopped_since, 0)
        self.waiting_since = self.stopped_since = None

    def remove(self, at: int, by: str) -> None:
        """It is no member any more."""
        self.stop_waiting(at)
        self.row.gone_at, self.row.gone_by = at, by
