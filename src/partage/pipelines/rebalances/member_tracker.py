"""State of a member after the last event."""

from __future__ import annotations

from partage.pipelines.rebalances.rows import MemberRow


class MemberTracker:
    """A member and the start of its current wait."""

    def __init__(self, row: MemberRow) -> None:
        self.row = row
        self.has_partitions = False  # in its last assignment
        self.waiting_since: int | None = None
        self.stopped_since: int | None = None

    def stop_waiting(self, at: int) -> None:
        """End the wait of the member: it has its assignment, or has left."""
        # The clocks of two brokers can differ; a negative wait counts as zero.
        if self.waiting_since is not None:
            self.row.waited_ms += max(at - self.waiting_since, 0)
        if self.stopped_since is not None:
            self.row.stalled_ms += max(at - self.stopped_since, 0)
        self.waiting_since = self.stopped_since = None

    def remove(self, at: int, by: str) -> None:
        """Record that the member has left the group."""
        self.stop_waiting(at)
        self.row.gone_at, self.row.gone_by = at, by
