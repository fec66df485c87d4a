"""The steps of a rebalance that several requests share.

A rebalance has these steps:

1. `start_rebalance`: a member joined, left or changed.
2. Members park in Join.
3. `complete_join`: all members have joined, or the join timer fired.
4. Members park in Sync.
5. `sync.sync` stores the leader's assignment, and the group is Stable.
"""

from __future__ import annotations

from partage.coordinator.event_context import EventContext
from partage.coordinator.events import Ticket
from partage.coordinator.group import Group, InitialDelay
from partage.coordinator.member import Member
from partage.coordinator.outcome import SESSION_EXPIRED_REASON, GroupEventType, RebalanceCause
from partage.coordinator.replies import JoinedMember, JoinReply, SyncReply
from partage.coordinator.states import MAY_REBALANCE, GroupState
from partage.coordinator.timers import JoinTimer, SyncTimer
from partage.model.errors import ErrorCode

# Parked requests.


def park_join(context: EventContext, group: Group, member: Member, ticket: Ticket) -> None:
    """Park a Join until the join phase ends, and pause the member's session.

    A new member has no session. Its timer limits how long a Join without any reply may stay parked,
    and a repeated Join does not extend it.
    """
    if member.join_ticket is None:
        group.count_joined(member, +1)
    else:  # repeated on another connection: the older request is void
        refused = JoinReply(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.id)
        context.reply(member.join_ticket, refused)
    member.join_ticket = ticket
    member.joined_ms = context.at_ms
    if not member.is_new:
        context.cancel_timer(member.session_timer)


def reply_to_join(context: EventContext, group: Group, member: Member, reply: JoinReply) -> None:
    """Reply to the parked Join, if there is one."""
    if member.join_ticket is None:
        return
    context.reply(member.join_ticket, reply)
    member.join_ticket = None
    group.count_joined(member, -1)


def park_sync(context: EventContext, member: Member, ticket: Ticket) -> None:
    """Park a Sync until the leader's assignment is stored, and pause the member's session."""
    if member.sync_ticket is not None:
        context.reply(member.sync_ticket, SyncReply(error=ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_ticket = ticket
    context.cancel_timer(member.session_timer)


def reply_to_sync(context: EventContext, member: Member, reply: SyncReply) -> None:
    """Reply to the parked Sync, if there is one, and restart the member's session."""
    if member.sync_ticket is None:
        return
    context.reply(member.sync_ticket, reply)
    member.sync_ticket = None
    context.restart_session(member)


def fence_member(context: EventContext, group: Group, member: Member, error: ErrorCode) -> None:
    """End the member's session, and reply to its parked requests with ``error``."""
    fenced_id = member.id if error is ErrorCode.FENCED_INSTANCE_ID else ""
    reply_to_join(context, group, member, JoinReply(error=error, member_id=fenced_id))
    reply_to_sync(context, member, SyncReply(error=error))
    context.cancel_timer(member.session_timer)


def remove_member(context: EventContext, group: Group, member: Member, error: ErrorCode) -> None:
    """Remove a member, and reply to its parked requests with ``error``."""
    fence_member(context, group, member, error)
    group.remove(member)


def remove_pending_member(context: EventContext, group: Group, member_id: str) -> None:
    """Forget a pending member id.

    The caller must then check whether the join phase is complete.
    """
    del group.pending_members[member_id]
    context.cancel_timer(Member.session_timer_key(group.id, member_id))


def generation_reply(group: Group, member: Member, *, with_members: bool) -> JoinReply:
    """Return the JoinGroup reply that puts a member into the current generation."""
    return JoinReply(
        member_id=member.id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader or "",
        members=tuple(
            JoinedMember(m.id, m.instance_id, m.metadata(group.protocol))
            for m in group.members.values()
        )
        if with_members
        else (),
    )


# Join phase.


def start_rebalance(
    context: EventContext,
    group: Group,
    cause: RebalanceCause,
    reason: str,
    member_id: str | None = None,
) -> None:
    """Start a rebalance; if the join phase is under way, end it if it is complete.

    Args:
        context: Context of the current event.
        group: The group.
        cause: The kind of cause, for the group event.
        reason: The cause in words, for the group event.
        member_id: The member that caused the rebalance.
    """
    if group.state not in MAY_REBALANCE:
        maybe_complete_join(context, group)
        return
    if group.state is GroupState.COMPLETING_REBALANCE:
        abort_sync(context, group)
    context.cancel_timer(SyncTimer(group.id))
    group.pending_sync_members.clear()
    group.is_sync_resumed = False
    is_first = group.state is GroupState.EMPTY
    group.transition_to(GroupState.PREPARING_REBALANCE)
    context.emit(group, GroupEventType.REBALANCE_STARTED, member_id, reason, cause=cause)
    if is_first:
        _begin_initial_delay(context, group)
    elif group.has_all_joined:
        complete_join(context, group)
    else:
        context.arm_timer(JoinTimer(group.id), group.rebalance_timeout_ms())


def abort_sync(context: EventContext, group: Group, assignment_error: str | None = None) -> None:
    """Reply to all parked Syncs with REBALANCE_IN_PROGRESS, so that the members join again."""
    refused = SyncReply(error=ErrorCode.REBALANCE_IN_PROGRESS, assignment_error=assignment_error)
    for member in group.members.values():
        reply_to_sync(context, member, refused)


def _begin_initial_delay(context: EventContext, group: Group) -> None:
    """Start the initial delay, during which other members can join (KIP-134)."""
    delay_ms = context.settings.initial_rebalance_delay_ms
    remaining_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
    group.initial_delay = InitialDelay(delay_ms, remaining_ms)
    context.arm_timer(JoinTimer(group.id), delay_ms)


def on_join_timeout(context: EventContext, group: Group) -> None:
    """Handle the join timer: prolong the initial delay, or end the join phase."""
    delay = group.initial_delay
    if delay is None or not delay.has_new_member or delay.remaining_ms == 0:
        complete_join(context, group)
        return
    next_ms = min(context.settings.initial_rebalance_delay_ms, delay.remaining_ms)
    remaining_ms = max(delay.remaining_ms - delay.delay_ms, 0)
    group.initial_delay = InitialDelay(next_ms, remaining_ms)
    context.arm_timer(JoinTimer(group.id), next_ms)


def maybe_complete_join(context: EventContext, group: Group) -> None:
    """End the join phase if all members have joined and no initial delay is running."""
    is_joining = group.state is GroupState.PREPARING_REBALANCE and group.initial_delay is None
    if is_joining and group.has_all_joined:
        complete_join(context, group)


def complete_join(context: EventContext, group: Group) -> None:
    """End the join phase: the members that joined form the next generation.

    Dynamic members that did not join are removed. Static ones stay until their session ends. If
    only absent static members are left, the join phase continues.
    """
    context.cancel_timer(JoinTimer(group.id))
    group.initial_delay = None
    absent = [m for m in group.members.values() if m.join_ticket is None and not m.is_static]
    for member in absent:
        remove_member(context, group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        cause = RebalanceCause.NOT_REJOINED
        context.emit(group, GroupEventType.EXPIRED, member.id, cause, cause=cause, member=member)
    if group.members and not group.elect_leader():
        context.arm_timer(JoinTimer(group.id), group.rebalance_timeout_ms())
        return
    if group.members:
        _start_generation(context, group)
    else:
        _become_empty(context, group)


def _become_empty(context: EventContext, group: Group) -> None:
    group.transition_to(GroupState.EMPTY)
    context.write(
        group.snapshot(
            at_ms=context.at_ms,
            generation=group.generation + 1,
            protocol=None,
            awaiting_sync=False,
            assignments={},
        )
    )
    context.emit(group, GroupEventType.EMPTIED)


def _start_generation(context: EventContext, group: Group) -> None:
    """Store the generation, then reply to all members that joined.

    Kafka stores a generation only with its assignment. The client-side assignment proposal asks to
    store it here, so that a coordinator that takes over knows that a sync is under way.
    """
    group.transition_to(GroupState.COMPLETING_REBALANCE)
    protocol = group.select_protocol()
    group.elect_newest_version(protocol)
    context.write(
        group.snapshot(
            at_ms=context.at_ms,
            generation=group.generation + 1,
            protocol=protocol,
            awaiting_sync=True,
            assignments={},
        )
    )
    group.pending_sync_members = dict.fromkeys(group.members)
    joined_ms = tuple(
        None if m.join_ticket is None else m.joined_ms for m in group.members.values()
    )
    for member in group.members.values():
        leads = member.id == group.leader
        reply_to_join(context, group, member, generation_reply(group, member, with_members=leads))
        member.is_new = False
        context.restart_session(member)
    context.arm_timer(SyncTimer(group.id), group.rebalance_timeout_ms())
    context.emit(group, GroupEventType.GENERATION_STARTED, group.leader, times_ms=joined_ms)


def on_sync_timeout(context: EventContext, group: Group) -> None:
    """Handle the sync timer: remove the members that did not send SyncGroup (KAFKA-12890)."""
    silent = list(group.pending_sync_members)
    cause = RebalanceCause.NOT_SYNCED
    for member_id in silent:
        member = group.members[member_id]
        remove_member(context, group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        context.emit(group, GroupEventType.EXPIRED, member_id, cause, cause=cause, member=member)
    reason = f"members without SyncGroup: {len(silent)}"
    start_rebalance(context, group, cause, reason, next(iter(silent), None))


# Departures.


def on_member_departed(
    context: EventContext, group: Group, cause: RebalanceCause, reason: str, member_id: str
) -> None:
    """Start a rebalance after a member left, or end a join phase that waited only for it."""
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        start_rebalance(context, group, cause, reason, member_id)
    else:
        maybe_complete_join(context, group)


def on_session_timeout(context: EventContext, group: Group, member_id: str) -> None:
    """Handle a session timer of a member or a pending member."""
    if member_id in group.pending_members:
        remove_pending_member(context, group, member_id)
        maybe_complete_join(context, group)
        return
    member = group.members[member_id]
    # A new member's client may still wait after five minutes in a parked Join; the error lets it
    # retry.
    remove_member(context, group, member, ErrorCode.UNKNOWN_MEMBER_ID)
    cause = RebalanceCause.SESSION_EXPIRED
    context.emit(
        group,
        GroupEventType.EXPIRED,
        member_id,
        SESSION_EXPIRED_REASON,
        cause=cause,
        member=member,
    )
    on_member_departed(context, group, cause, f"session of member {member_id} expired", member_id)
