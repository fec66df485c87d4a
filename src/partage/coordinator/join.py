"""JoinGroup: a new member joins, or an existing one reports a change."""

from __future__ import annotations

import msgspec

from partage.coordinator import rebalance
from partage.coordinator.event_context import EventContext
from partage.coordinator.events import Join
from partage.coordinator.group import Group
from partage.coordinator.member import Member, record_size
from partage.coordinator.outcome import GroupEventType, RebalanceCause
from partage.coordinator.replies import JoinReply
from partage.coordinator.response_table import RESPONSE_ERRORS, RESPONSES, RequestCase, Response
from partage.coordinator.states import GroupState
from partage.coordinator.timers import SyncTimer
from partage.model.errors import ErrorCode


def validate_request(context: EventContext, event: Join) -> ErrorCode | None:
    """Return the error of a request that is invalid for every group; None if it is valid."""
    if not event.group_id:
        return ErrorCode.INVALID_GROUP_ID
    settings = context.settings
    if not (
        settings.session_timeout_min_ms
        <= event.session_timeout_ms
        <= settings.session_timeout_max_ms
    ):
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return None


def join(context: EventContext, group: Group, event: Join) -> None:
    """Handle a Join for a group that exists or was just created for it."""
    holder = _existing_member(group, event)
    if not _has_room(context, group, holder):
        _reject_full_group(context, group, event, holder)
    elif not group.supports_protocols(event.protocol_type, event.protocols):
        _reject(context, event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif not _fits_record(context, group, event, holder):
        _reject(context, event, ErrorCode.GROUP_MAX_SIZE_REACHED)
    elif not event.member_id:
        _join_new(context, group, event)
    elif event.member_id in group.pending_members and event.instance_id is None:
        _add_new_member(context, group, event, event.member_id)
    else:
        _rejoin(context, group, event)


def _reject(context: EventContext, event: Join, error: ErrorCode) -> None:
    context.reply(event.reply_to, JoinReply(error=error, member_id=event.member_id))


def _existing_member(group: Group, event: Join) -> Member | None:
    """Return the member that the request would replace or update; None for a new member.

    That is the member with its id, or, for a static member without an id, the one with its instance
    id.
    """
    if not event.member_id and event.instance_id is not None:
        return group.members.get(group.static_members.get(event.instance_id, ""))
    return group.members.get(event.member_id)


def _has_room(context: EventContext, group: Group, holder: Member | None) -> bool:
    """True if the group has room for the member (``group.max.size``, KIP-389).

    In the join phase, the members that have joined count, so the last ones to rejoin an oversized
    group are rejected. Absent static members count too, because they stay in the group.

    Kafka does not count absent static members, so a group can exceed its maximum. It counts a
    returning static member as new and rejects it from a full group.

    Args:
        context: Context of the current event.
        group: The group.
        holder: The member that the request comes from or replaces, which is in the group already.
    """
    members_max = context.settings.members_max
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            if holder is None:
                return group.next_generation_size < members_max
            has_joined = holder.join_ticket is not None
            return has_joined or group.next_generation_size - holder.is_static < members_max
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            return holder is not None or len(group.members) < members_max
    return True


def _reject_full_group(
    context: EventContext, group: Group, event: Join, holder: Member | None
) -> None:
    error = ErrorCode.GROUP_MAX_SIZE_REACHED
    context.reply(event.reply_to, JoinReply(error=error, member_id=""))
    if holder is not None:
        rebalance.remove_member(context, group, holder, error)
        reason = "the group is full"
        context.emit(group, GroupEventType.LEFT, holder.id, reason, member=holder)
    elif event.member_id in group.pending_members:
        rebalance.remove_pending_member(context, group, event.member_id)
    rebalance.maybe_complete_join(context, group)


def _fits_record(context: EventContext, group: Group, event: Join, holder: Member | None) -> bool:
    """True if the group's record has room for the member.

    If the log refused a record, the shard would be discarded and reloaded, which interrupts all its
    groups.
    """
    member_id = event.member_id or event.generated_member_id
    held = 0 if holder is None else holder.record_bytes
    brought = record_size(member_id, event.instance_id, event.client_id, event.protocols)
    return group.record_bytes - held + brought <= context.settings.group_bytes_max


def _join_new(context: EventContext, group: Group, event: Join) -> None:
    """Handle a Join without a member id.

    The coordinator generates an id, and a static member replaces the one with its instance id.
    """
    if event.instance_id is not None and event.instance_id in group.static_members:
        _replace_static(
            context, group, event, group.members[group.static_members[event.instance_id]]
        )
    elif event.instance_id is None and event.must_rejoin_with_id:
        group.pending_members[event.generated_member_id] = None
        timer = Member.session_timer_key(group.id, event.generated_member_id)
        context.arm_timer(timer, event.session_timeout_ms)
        error = ErrorCode.MEMBER_ID_REQUIRED
        context.reply(event.reply_to, JoinReply(error=error, member_id=event.generated_member_id))
    else:
        _add_new_member(context, group, event, event.generated_member_id)


def _add_new_member(context: EventContext, group: Group, event: Join, member_id: str) -> None:
    """Add a new member and park it."""
    if not group.members:
        group.protocol_type = event.protocol_type
    member = Member(
        group_id=group.id,
        member_id=member_id,
        instance_id=event.instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_timeout_ms(event),
        protocols=event.protocols,
    )
    member.is_new = True
    group.add(member)
    if group.initial_delay is not None:
        group.initial_delay.has_new_member = True
    rebalance.park_join(context, group, member, event.reply_to)
    # The member has no id to send heartbeats with, and may disappear unnoticed (KAFKA-7610).
    context.arm_timer(member.session_timer, context.settings.new_member_join_timeout_ms)
    context.emit(group, GroupEventType.JOINED, member_id, event.reason or "", member=member)
    reason = _with_reason(f"member {member_id} joined", event)
    rebalance.start_rebalance(context, group, RebalanceCause.MEMBER_JOINED, reason, member_id)


def _rebalance_timeout_ms(event: Join) -> int:
    """JoinGroup v0 has no rebalance timeout: it uses the session timeout."""
    if event.rebalance_timeout_ms < 0:
        return event.session_timeout_ms
    return event.rebalance_timeout_ms


def _with_reason(what: str, event: Join) -> str:
    return f"{what}: {event.reason}" if event.reason else what


def _rejoin(context: EventContext, group: Group, event: Join) -> None:
    """Handle a Join of an existing member, which takes part in a rebalance or starts one."""
    member = group.validate_member(event.member_id, event.instance_id)
    if isinstance(member, ErrorCode):
        _reject(context, event, member)
        return
    match RESPONSES[_request_case(group, member, event)][group.state]:
        case Response.REPEAT if not group.is_sync_resumed:
            leads = member.id == group.leader
            context.reply(
                event.reply_to, rebalance.generation_reply(group, member, with_members=leads)
            )
            context.restart_session(member)
        case Response.CURRENT:
            context.reply(
                event.reply_to, rebalance.generation_reply(group, member, with_members=False)
            )
            context.restart_session(member)
        case Response.PARK | Response.REBALANCE | Response.REPEAT:
            _update(group, member, event)
            rebalance.park_join(context, group, member, event.reply_to)
            reason = _with_reason(f"member {member.id} rejoined", event)
            rebalance.start_rebalance(
                context, group, RebalanceCause.MEMBER_REJOINED, reason, member.id
            )
        case answer:
            _reject(context, event, RESPONSE_ERRORS[answer])


def _request_case(group: Group, member: Member, event: Join) -> RequestCase:
    if group.state is GroupState.STABLE and member.id == group.leader:
        return RequestCase.JOIN_LEADER
    if event.protocols != member.protocols:
        return RequestCase.JOIN_CHANGED
    return RequestCase.JOIN_LEADER if member.id == group.leader else RequestCase.JOIN_UNCHANGED


def _update(group: Group, member: Member, event: Join) -> None:
    group.update_protocols(member, event.protocols)
    member.session_timeout_ms = event.session_timeout_ms
    member.rebalance_timeout_ms = _rebalance_timeout_ms(event)


def _replace_static(context: EventContext, group: Group, event: Join, old: Member) -> None:
    """Replace a static member that returned without its id by one with a new id (KIP-345).

    A stable group whose selected protocol does not change has no rebalance: the member will get its
    predecessor's assignment. Requests with the predecessor's id are fenced.
    """
    fenced = ErrorCode.FENCED_INSTANCE_ID
    leader_before = group.leader
    rebalance.fence_member(context, group, old, fenced)
    member = group.replace_static_member(old, event.generated_member_id)
    member.client_id, member.client_host = event.client_id, event.client_host
    _update(group, member, event)
    context.emit(group, GroupEventType.FENCED, old.id, f"replaced by {member.id}", member=member)
    if group.state is not GroupState.STABLE or group.select_protocol() != group.protocol:
        rebalance.park_join(context, group, member, event.reply_to)
        reason = _with_reason(f"static member {member.id} returned", event)
        rebalance.start_rebalance(
            context, group, RebalanceCause.STATIC_MEMBER_RETURNED, reason, member.id
        )
        return
    assignments = dict(group.assignments)
    assignments[member.id] = assignments.pop(old.id, b"")
    context.write(
        group.snapshot(
            at_ms=group.record.since_ms,
            generation=group.generation,
            protocol=group.protocol,
            awaiting_sync=False,
            assignments=assignments,
        )
    )
    context.reply(event.reply_to, _static_rejoin_reply(group, member, event, leader_before or ""))
    context.restart_session(member)
    if member.id in group.pending_sync_members:  # the predecessor's time to sync may be nearly over
        context.arm_timer(SyncTimer(group.id), group.rebalance_timeout_ms())


def _static_rejoin_reply(
    group: Group, member: Member, event: Join, leader_before: str
) -> JoinReply:
    """Return the reply to a static member that rejoined a stable group.

    A returning leader must not assign again. The reply says so (KIP-814), or names the previous
    leader to an older client.
    """
    leads = member.id == group.leader
    if event.may_skip_assignment:
        reply = rebalance.generation_reply(group, member, with_members=leads)
        return msgspec.structs.replace(reply, skip_assignment=leads)
    reply = rebalance.generation_reply(group, member, with_members=False)
    return msgspec.structs.replace(reply, leader=leader_before)
