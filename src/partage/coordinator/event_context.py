"""The context of one event: what a handler can read and do."""

from __future__ import annotations

from collections.abc import Callable

from partage.coordinator.events import Ticket
from partage.coordinator.group import Group
from partage.coordinator.group_base import GroupBase, GroupType
from partage.coordinator.member import Member
from partage.coordinator.outcome import GroupEvent, GroupEventType, Outcome, RebalanceCause
from partage.coordinator.records import Record
from partage.coordinator.replies import Reply
from partage.coordinator.timers import TimerKey
from partage.model.settings import GroupSettings
from partage.statemachine.context import TimerContext


class EventContext(TimerContext[TimerKey], Outcome):
    """The outcome of an event under way, with the time of the event and the settings."""

    __slots__ = ("_apply", "at_ms", "settings")

    def __init__(
        self, at_ms: int, settings: GroupSettings, apply: Callable[[Record], None]
    ) -> None:
        # The attributes of `Outcome`: a call of its initializer takes as long as all of these.
        self.records = []
        self.timers = []
        self.replies = []
        self.group_events = []
        self.actions = []
        self.at_ms = at_ms
        self.settings = settings
        self._apply = apply

    def write(self, record: Record) -> None:
        """Apply a record and add it to the records to append."""
        self._apply(record)
        self.records.append(record)

    def reply(self, ticket: Ticket, reply: Reply) -> None:
        """Reply to a ticket once all records written so far are durable."""
        self.replies.append((ticket, reply))

    def restart_session(self, member: Member) -> None:
        """Restart the member's session timer, unless the member is parked."""
        if member.join_ticket is None and member.sync_ticket is None:  # it is not parked
            self.timers.append((member.session_timer, self.at_ms + member.session_timeout_ms))

    def emit(
        self,
        group: GroupBase,
        event_type: GroupEventType,
        member_id: str | None = None,
        reason: str = "",
        *,
        cause: RebalanceCause | None = None,
        member: Member | None = None,
        times_ms: tuple[int | None, ...] | None = None,
        topics: tuple[str, ...] = (),
    ) -> None:
        """Emit a group event for operators; with ``times_ms`` it includes the generation."""
        record = None if member_id is None else group.member_record(member_id)
        self.group_events.append(
            GroupEvent(
                at_ms=self.at_ms,
                group_id=group.id,
                event_type=event_type,
                generation=group.generation,
                member_id=member_id,
                reason=reason,
                cause=cause,
                member=record if member is None else member.to_record(None, b""),
                group_record=group.record
                if times_ms is not None and isinstance(group, Group)
                else None,
                times_ms=times_ms or (),
                topics=topics,
                is_consumer_group=group.type is GroupType.CONSUMER,
            )
        )
