"""A member of a consumer group, in memory."""

from __future__ import annotations

import msgspec

from partage.coordinator.consumer_group.events import ConsumerGroupHeartbeat
from partage.coordinator.consumer_group.partitions import PartitionSet
from partage.coordinator.consumer_group.records import (
    ConsumerMemberRecord,
    MemberAssignmentRecord,
    ReconciliationState,
)
from partage.coordinator.consumer_group.replies import ConsumerGroupHeartbeatReply
from partage.coordinator.timers import RebalanceTimer, SessionTimer

#: The epoch of a member that joins.
JOIN_EPOCH = 0
#: The epoch of a static member that left for a while.
STATIC_LEAVE_EPOCH = -2
#: The epoch in the heartbeat of a member that leaves.
LEAVE_EPOCH = -1


class UnchangedHeartbeat(msgspec.Struct, frozen=True, gc=False):
    """A repeated heartbeat that changed nothing, and its effects.

    It has the same effects again while the first three attributes are the same.

    Attributes:
        original: The first of the repeated heartbeats; None if it is not a repeated one.
        applied: The number of records that its group had applied (`ConsumerGroup.applied`).
        updates: The number of updates of the catalogue (`Catalogue.updates`).
        session_timer: The timer that it restarted.
        session_timeout_ms: The time until this timer fires.
        reply: The reply to it. Connections recognize the same reply faster than an equal one.
    """

    original: ConsumerGroupHeartbeat | None
    applied: int
    updates: int
    session_timer: SessionTimer
    session_timeout_ms: int
    reply: ConsumerGroupHeartbeatReply


class ConsumerMember:
    """One member: its subscription, its assignment, and its part of the target assignment.

    ``record`` is None only while a log is replayed in which an assignment comes before its member.

    All of it is durable except two fields. ``awaits_request`` is True while the next JoinGroup or
    SyncGroup of a member with the classic protocol must arrive before the rebalance timer.
    ``unchanged`` is the last repeated heartbeat that changed nothing, None before the first one.
    """

    __slots__ = (
        "assignment",
        "awaits_request",
        "id",
        "rebalance_timer",
        "record",
        "session_timer",
        "target",
        "unchanged",
    )

    def __init__(self, group_id: str, member_id: str) -> None:
        self.id = member_id
        self.record: ConsumerMemberRecord | None = None
        self.target: PartitionSet = {}
        self.awaits_request = False
        self.unchanged: UnchangedHeartbeat | None = None
        self.assignment = MemberAssignmentRecord(
            group_id=group_id, member_id=member_id, member_epoch=0, previous_member_epoch=0
        )
        self.session_timer = SessionTimer(group_id, member_id)
        self.rebalance_timer = RebalanceTimer(group_id, member_id)

    @property
    def subscription(self) -> ConsumerMemberRecord:
        """The stored subscription of the member."""
        assert self.record is not None, f"member {self.id} has an assignment, but is not stored"
        return self.record

    @property
    def client_id(self) -> str:
        """The client id of the member."""
        return self.subscription.client_id

    @property
    def epoch(self) -> int:
        """The epoch of the member; -2 for a static member that left for a while."""
        return self.assignment.member_epoch

    @property
    def is_classic(self) -> bool:
        """True if the member uses the classic protocol."""
        return self.record is not None and self.record.classic is not None

    @property
    def must_revoke(self) -> bool:
        """True while the rebalance timer waits for the member to give up partitions.

        A member that replaces a static one owns nothing until its join is answered.
        """
        return (
            not self.is_classic
            and self.assignment.state is ReconciliationState.UNREVOKED_PARTITIONS
            and self.epoch > JOIN_EPOCH
        )

    def is_reconciled(self, target_epoch: int) -> bool:
        """True if the member has reached the target assignment."""
        return (
            self.assignment.state is ReconciliationState.STABLE
            and self.assignment.member_epoch == target_epoch
        )
