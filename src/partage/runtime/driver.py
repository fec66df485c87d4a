"""Runs one shard of the group coordinator."""

from __future__ import annotations

from typing import get_args

from partage.coordinator import unavailable_replies
from partage.coordinator.consumer_group.actions import Action
from partage.coordinator.consumer_group.events import (
    GroupConfigsChanged,
    RegexesResolved,
    TargetComputed,
    TopicsChanged,
)
from partage.coordinator.events import Request, TimerFired
from partage.coordinator.outcome import GroupEvent, Outcome
from partage.coordinator.records import Record
from partage.coordinator.replies import Reply
from partage.coordinator.shard import Shard
from partage.model.errors import ErrorCode
from partage.runtime.shard_driver import ShardDriver


class Driver(ShardDriver[Shard, Record, Reply]):
    """The driver of a group coordinator's shard.

    A shell also checks ``group_events`` and ``actions`` after each call.
    """

    request_types = get_args(Request)
    timer_type = TimerFired
    # After loading, a shell sends topics and configs again, and a group orders its actions again.
    unrepeated_types = (
        TimerFired,
        TopicsChanged,
        GroupConfigsChanged,
        TargetComputed,
        RegexesResolved,
    )
    error_reply = staticmethod(unavailable_replies.error_reply)
    replace_with_error = staticmethod(unavailable_replies.replace_with_error)

    def __init__(self) -> None:
        super().__init__()
        self.group_events: list[GroupEvent] = []
        self.actions: list[Action] = []

    def _apply_notices(self, outcome: Outcome) -> None:
        if outcome.group_events:
            self.group_events += outcome.group_events
        if outcome.actions:
            self.actions += outcome.actions

    def fail(self, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        """Discard the shard and its actions."""
        super().fail(error)
        self.actions.clear()

    def pop_group_events(self) -> list[GroupEvent]:
        """Remove and return the group events since the last call."""
        events, self.group_events = self.group_events, []
        return events

    def pop_actions(self) -> list[Action]:
        """Remove and return the actions to perform."""
        actions, self.actions = self.actions, []
        return actions
