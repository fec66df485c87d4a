"""The requests that wait for a target assignment, when their member leaves the group."""

from __future__ import annotations

from partage.coordinator.consumer_group.group import ConsumerGroup, ParkedHeartbeat
from partage.coordinator.consumer_group.member import ConsumerMember
from partage.coordinator.consumer_group.replies import ConsumerGroupHeartbeatReply
from partage.coordinator.consumer_group.validation import heartbeat_error
from partage.coordinator.event_context import EventContext
from partage.coordinator.replies import JoinReply
from partage.model.errors import ErrorCode


def refuse_parked(
    context: EventContext,
    group: ConsumerGroup,
    member: ConsumerMember,
    join_error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID,
) -> bool:
    """Answer the waiting requests of a member that leaves; return True if there were any.

    Args:
        context: Context of the current event.
        group: The group.
        member: The member.
        join_error: The error for a JoinGroup that waits.
    """
    computation = group.computation
    refused = [
        parked
        for parked in (() if computation is None else computation.parked)
        if parked.member_id == member.id
    ]
    for parked in refused:
        assert computation is not None
        computation.parked.remove(parked)
        refuse(context, parked, unknown_member(group, member.id), join_error)
    return bool(refused)


def refuse(
    context: EventContext,
    parked: ParkedHeartbeat,
    reply: ConsumerGroupHeartbeatReply,
    join_error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID,
) -> None:
    """Answer one request: a heartbeat with ``reply``, and a JoinGroup with ``join_error``."""
    if parked.is_join_group:
        context.reply(parked.ticket, JoinReply(error=join_error, member_id=parked.member_id))
    else:
        context.reply(parked.ticket, reply)


def unknown_member(group: ConsumerGroup, member_id: str) -> ConsumerGroupHeartbeatReply:
    """Return the reply to a member that is not in the group."""
    message = f"Member {member_id} is not a member of group {group.id}."
    return heartbeat_error(ErrorCode.UNKNOWN_MEMBER_ID, message)
