"""Runs one shard of the group coordinator."""

from __future__ import annotations

from typing import get_args

from partage.coordinator import unavailable_replies
from partage.coordinator.events import Request, TimerFired
from partage.coordinator.outcome import GroupEvent, Outcome
from partage.coordinator.records import Record
from partage.coordinator.replies import Reply
from partage.coordinator.shard import Shard
from partage.runtime.shard_driver import ShardDriver, ShardOutcome


class Driver(ShardDriver[Shard, Record, Reply]):
    """The driver of a group coordinator's shard.

    A shell also checks ``group_events`` after each call.
    """

    request_types = get_args(Request)
    timer_type = TimerFired
    unrepeated_types = (TimerFired,)
    error_reply = staticmethod(unavailable_replies.error_reply)
    replace_with_error = staticmethod(unavailable_replies.replace_with_error)

    def __init__(self) -> None:
        super().__init__()
        self.group_events: list[GroupEvent] = []

    def _apply_outcome(self, outcome: ShardOutcome) -> None:
        super()._apply_outcome(outcome)
        assert isinstance(outcome, Outcome)
        if outcome.group_events:
            self.group_events += outcome.group_events

    def pop_group_events(self) -> list[GroupEvent]:
        """Remove and return the group events since the last call."""
        events, self.group_events = self.group_events, []
        return events
