"""Which coordinator had a group, and when."""

from __future__ import annotations

from partage.coordinator.outcome import GroupEventType
from partage.pipelines.rebalances.rows import CoordinatorRow
from partage.store.group_events import GroupEventRecord


class CoordinatorTracker:
    """The coordinators of one group, in order; `take` its events."""

    def __init__(self) -> None:
        self.rows: list[CoordinatorRow] = []

    def apply(self, event: GroupEventRecord) -> bool:
        """Go on with the next event. Whether it shows that the group has no members any more:
        another broker has it, and would have told of them before anything else.
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
