"""The outcome of an event, and the contract with the driver."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from partage.coordinator.consumer_group.actions import Action
from partage.coordinator.consumer_group.embedded_protocol import TopicPartitions
from partage.coordinator.events import Ticket
from partage.coordinator.records import GroupRecord, MemberRecord, Record
from partage.coordinator.replies import Reply
from partage.coordinator.timers import TimerKey


class GroupEventType(StrEnum):
    """The kinds of group events that are published for operators."""

    JOINED = "joined"
    LEFT = "left"
    EXPIRED = "expired"
    FENCED = "fenced"
    REBALANCE_STARTED = "rebalance started"
    GENERATION_STARTED = "generation started"
    ASSIGNED = "assigned"
    SYNCED = "synced"
    EMPTIED = "emptied"
    REMOVED = "removed"
    COMMIT_REFUSED = "commit refused"
    OFFSETS_EXPIRED = "offsets expired"
    ASSIGNOR_FAILED = "assignor failed"
    LOADED = "loaded"
    # Of groups with the consumer protocol only.
    EPOCH_RAISED = "epoch raised"
    TARGET_ASSIGNED = "target assigned"
    RECONCILING = "reconciling"
    RECONCILED = "reconciled"
    LEFT_FOR_A_WHILE = "left for a while"
    # Of both protocols.
    UPGRADED = "upgraded"
    DOWNGRADED = "downgraded"


class RebalanceCause(StrEnum):
    """The cause of a rebalance, or of the removal of a member."""

    MEMBER_JOINED = "member joined"
    MEMBER_REJOINED = "member joined again"
    STATIC_MEMBER_RETURNED = "static member came back"
    MEMBER_LEFT = "member left"
    SESSION_EXPIRED = "session expired"
    NOT_REJOINED = "did not rejoin in time"
    NOT_SYNCED = "never asked for its assignment"
    ASSIGNMENT_FAILED = "leader could not assign"
    NOT_REVOKED = "did not give up partitions in time"
    GROUP_TOO_LARGE = "more members than allowed"
    DOWNGRADED = "change to the classic protocol"
    UPGRADED = "change to the consumer protocol"
    SUBSCRIPTION_CHANGED = "subscription changed"
    TOPICS_CHANGED = "subscribed topics changed"
    REGEX_CHANGED = "regular expression matches other topics"
    ASSIGNOR_CHANGED = "preferred assignor changed"
    MISSING_TARGET = "member joined during the assignment"


#: The reason in the `GroupEvent` of a member whose session expired.
SESSION_EXPIRED_REASON: Final = "no heartbeat within its session timeout"


class MemberProgress(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A member of a consumer group on its way to its target assignment.

    Attributes:
        member: The identity of the member.
        epoch: The epoch of the member; -2 for a static member that left for a while.
        state: The name of its `ReconciliationState`.
        assigned: The partitions that are assigned to it.
        revoking: The partitions that it must still give up.
    """

    member: MemberRecord
    epoch: int
    state: str
    assigned: TopicPartitions
    revoking: TopicPartitions


class GroupEvent(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An event in the life of a group, for operators. No decision depends on it.

    ``member`` is the member it is about. ``group_record`` is the generation; its members are in the
    order of ``times_ms``. When a generation starts, these are the times of their Joins; when it is
    assigned, the times at which the members got their assignments. None marks a member that did not
    join, or has no assignment yet. All times are times of events, in ms since the epoch.

    The events of a consumer group have no ``group_record``. Their ``generation`` is the epoch of
    the group, ``target_epoch`` that of its target assignment, and ``progress`` has members with
    their partitions.
    """

    at_ms: int
    group_id: str
    event_type: GroupEventType
    generation: int
    member_id: str | None = None
    reason: str = ""
    cause: RebalanceCause | None = None
    member: MemberRecord | None = None
    group_record: GroupRecord | None = None
    times_ms: tuple[int | None, ...] = ()
    topics: tuple[str, ...] = ()  # of a rejected commit
    is_consumer_group: bool = False
    target_epoch: int | None = None
    assignor: str | None = None  # that computed the target
    moved: int | None = None  # partitions that the target moves to another member
    progress: tuple[MemberProgress, ...] = ()


class Outcome:
    """The effects of one event. The driver carries them out in this order:

    1. ``records`` are already applied to the shard. Append them to its log, in order.
    2. ``timers`` are armed, or cancelled if the deadline is None, in order. A key has one deadline:
       arming a timer again replaces it.
    3. ``replies`` are sent only when every record applied so far, by this event or an earlier one,
       is durable. **This includes replies to reads**: a read must not return state that a crash can
       undo. Replies are sent in the order in which they were produced.

    4. ``actions`` are performed. Their results come back as events.

    If an append fails, the state since then is invalid. The driver discards the shard, answers all
    open tickets with an error, and loads the shard from its log again.
    """

    __slots__ = ("actions", "group_events", "records", "replies", "timers")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.timers: list[tuple[TimerKey, int | None]] = []
        self.replies: list[tuple[Ticket, Reply]] = []
        self.group_events: list[GroupEvent] = []
        self.actions: list[Action] = []
