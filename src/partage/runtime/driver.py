"""Runs one shard of the group coordinator."""

from __future__ import annotations

from typing import get_args

from partage.coordinator import unavailable_replies
from partage.coordinator.consumer_group.actions import Action
from partage.coordinator.consumer_group.events import (
    GroupConfigsChanged,
    RegexesResolved,
    RepeatedHeartbeat,
    TargetComputed,
    TopicsChanged,
)
from partage.coordinator.events import Heartbeat, Request, TimerFired
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

    def answer(self, event: Request) -> Reply | None:
        """Handle a request like `handle`, in fewer steps if it changes only timers.

        Returns:
            The reply that may be sent now, if it is the only effect besides timers. The caller must
            send it after the replies that are `ready`. In other cases None.
        """
        shard = self.shard
        try:
            if type(event) is Heartbeat or type(event) is RepeatedHeartbeat:
                effects = None
                if shard is not None and self._durable == self._applied:
                    effects = shard.heartbeat_effects(event)
                if effects is not None:
                    reply, timer, timeout_ms = effects
                    if timer is not None:
                        self.timers.set(timer, event.at_ms + timeout_ms)
                    return reply
                if type(event) is RepeatedHeartbeat:
                    event = event.complete()
            if shard is None:
                self.handle(event)
                return None
            outcome = shard.handle(event)
        except BaseException:
            self._open_requests[event.reply_to] = event  # so that `fail` replies to it
            raise
        replies = outcome.replies
        if (
            outcome.records
            or outcome.group_events
            or outcome.actions
            or len(replies) != 1
            or replies[0][0] is not event.reply_to
            or self._durable != self._applied
        ):
            self._apply_request_outcome(event, outcome)
            return None
        for key, deadline_ms in outcome.timers:
            self.timers.set(key, deadline_ms)
        return replies[0][1]

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
