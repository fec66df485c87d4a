"""Coordinators of a group, with their periods."""

from __future__ import annotations

from partage.coordinator.outcome import GroupEventType
from partage.pipelines.rebalances.rows import CoordinatorRow
from partage.store.group_events import GroupEventRecord


class CoordinatorTracker:
    """Coordinators of one group in order. Call `apply` for each event."""

    def __init__(self) -> None:
        self.rows: list[CoordinatorRow] = []

    def apply(self, event: GroupEventRecord) -> bool:
        """Apply the next event. Return True if it shows that the group has no members.

        That is so if another broker has the group now, and its first event is not a load: a load
        with the members always comes first.
        """
        last = self.rows[-1] if self.rows else None
        is_loaded = event.event == GroupEventType.LOADED
        is_again = is_loaded and event.epoch is None and event.part == 1
        found_nobody = False
        if last is None or last.epoch != event.epoch or is_again:
            found_nobody = last is not None and not is_loaded
            last = CoordinatorRow(
                group_id=event.group_id,
                broker_id=event.broker_id,
                epoch=event.epoch,
                from_at=event.at_ms,
                last_at=event.at_ms,
            )
            self.rows.append(last)
        last.events += 1
        last.last_at = max(last.last_at, event.at_ms)
        if is_loaded:
            last.found, last.found_generation = event.reason, event.generation
            last.found_members = (last.found_members or 0) + len(event.members or [])
        return found_nobody
