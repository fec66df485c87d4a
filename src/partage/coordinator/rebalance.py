"""The steps of a rebalance that several requests share.

Life of a rebalance: `start` (somebody came, went or changed) -> members park in Join ->
`finish_join` (all are there, or the time is up) -> members park in Sync -> the leader's assignment
is stored (`sync.sync`) -> stable.
"""

from __future__ import annotations

from partage.coordinator.events import Ticket
from partage.coordinator.group import Group, InitialDelay
from partage.coordinator.member import Member
from partage.coordinator.outcome import Cause, Happening
from partage.coordinator.replies import JoinedMember, JoinReply, SyncReply
from partage.coordinator.states import MAY_REBALANCE, GroupState
from partage.coordinator.timers import JoinTimer, SyncTimer
from partage.coordinator.turn import Turn
from partage.model.errors import ErrorCode

# Parking and answering.


def park_join(turn: Turn, group: Group, member: Member, ticket: Ticket) -> None:
    """The member waits for the end of the join phase; its session pauses.

    That of a new one does not: it has only the patience with members that were never answered,
    and asking again does not give it more.
    """
    if member.join_ticket is None:
        group.count_joined(member, +1)
    else:  # it asked again, on another connection: the older request is void
        refused = JoinReply(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.id)
        turn.reply(member.join_ticket, refused)
    member.join_ticket = ticket
    member.joined_ms = turn.at_ms
    if not member.is_new:
        turn.cancel(member.session_timer)


def answer_join(turn: Turn, group: Group, member: Member, reply: JoinReply) -> None:
    """Answer the parked Join, if there is one."""
    if member.join_ticket is None:
        return
    turn.reply(member.join_ticket, reply)
    member.join_ticket = None
    group.count_joined(member, -1)


def park_sync(turn: Turn, member: Member, ticket: Ticket) -> None:
    """The member waits for its assignment; its session pauses."""
    if member.sync_ticket is not None:
        turn.reply(member.sync_ticket, SyncReply(error=ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_ticket = ticket
    turn.cancel(member.session_timer)


def answer_sync(turn: Turn, member: Member, reply: SyncReply) -> None:
    """Answer the parked Sync, if there is one, and let the session begin anew."""
    if member.sync_ticket is None:
        return
    turn.reply(member.sync_ticket, reply)
    member.sync_ticket = None
    turn.keep_alive(member)


def fence(turn: Turn, group: Group, member: Member, error: ErrorCode) -> None:
    """Whoever waits in the member's name is told ``error``; its session ends."""
    fenced_id = member.id if error is ErrorCode.FENCED_INSTANCE_ID else ""
    answer_join(turn, group, member, JoinReply(error=error, member_id=fenced_id))
    answer_sync(turn, member, SyncReply(error=error))
    turn.cancel(member.session_timer)


def dismiss(turn: Turn, group: Group, member: Member, error: ErrorCode) -> None:
    """The member is no longer in the group; whoever waits in its name is told ``error``."""
    fence(turn, group, member, error)
    group.remove(member)


def forget_pending(turn: Turn, group: Group, member_id: str) -> None:
    """Who was given this id will not come; see then whether the join phase waited for it."""
    del group.pending[member_id]
    turn.cancel(Member.timer_for(group.id, member_id))


def generation_reply(group: Group, member: Member, *, with_members: bool) -> JoinReply:
    """The answer that makes a member part of the present generation."""
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


# The join phase.


def start(
    turn: Turn, group: Group, cause: Cause, reason: str, member_id: str | None = None
) -> None:
    """Start a rebalance, or, in its join phase already, see whether that is over.

    ``member_id`` is who gave the cause.
    """
    if group.state not in MAY_REBALANCE:
        end_join_if_complete(turn, group)
        return
    if group.state is GroupState.COMPLETING_REBALANCE:
        abandon_sync(turn, group)
    turn.cancel(SyncTimer(group.id))
    group.unsynced.clear()
    group.sync_resumed = False
    is_first = group.state is GroupState.EMPTY
    group.become(GroupState.PREPARING_REBALANCE)
    turn.notice(group, Happening.REBALANCE_STARTED, member_id, reason, cause=cause)
    if is_first:
        _begin_initial_delay(turn, group)
    elif group.all_joined:
        finish_join(turn, group)
    else:
        turn.arm(JoinTimer(group.id), group.rebalance_timeout_ms())


def abandon_sync(turn: Turn, group: Group, assignment_error: str | None = None) -> None:
    """Send those who wait for an assignment back to joining."""
    refused = SyncReply(error=ErrorCode.REBALANCE_IN_PROGRESS, assignment_error=assignment_error)
    for member in group.members.values():
        answer_sync(turn, member, refused)


def _begin_initial_delay(turn: Turn, group: Group) -> None:
    """The first members of a group seldom come alone: wait for the others (KIP-134)."""
    delay_ms = turn.settings.initial_rebalance_delay_ms
    remaining_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
    group.initial_delay = InitialDelay(delay_ms, remaining_ms)
    turn.arm(JoinTimer(group.id), delay_ms)


def join_time_is_up(turn: Turn, group: Group) -> None:
    """The join timer fired: prolong the initial delay, or end the join phase."""
    delay = group.initial_delay
    if delay is None or not delay.member_added or delay.remaining_ms == 0:
        finish_join(turn, group)
        return
    next_ms = min(turn.settings.initial_rebalance_delay_ms, delay.remaining_ms)
    remaining_ms = max(delay.remaining_ms - delay.delay_ms, 0)
    group.initial_delay = InitialDelay(next_ms, remaining_ms)
    turn.arm(JoinTimer(group.id), next_ms)


def end_join_if_complete(turn: Turn, group: Group) -> None:
    """End the join phase, if there is one, all have joined, and no initial delay is running."""
    is_joining = group.state is GroupState.PREPARING_REBALANCE and group.initial_delay is None
    if is_joining and group.all_joined:
        finish_join(turn, group)


def finish_join(turn: Turn, group: Group) -> None:
    """End the join phase: those who are there become the next generation.

    Dynamic members that did not make it are dropped, static ones stay until their session ends.
    If nobody came at all, but static members are left, the phase goes on.
    """
    turn.cancel(JoinTimer(group.id))
    group.initial_delay = None
    absent = [m for m in group.members.values() if m.join_ticket is None and not m.is_static]
    for member in absent:
        dismiss(turn, group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        cause = Cause.NOT_REJOINED
        turn.notice(group, Happening.EXPIRED, member.id, cause, cause=cause, member=member)
    if group.members and not group.elect():
        turn.arm(JoinTimer(group.id), group.rebalance_timeout_ms())
        return
    if group.members:
        _start_generation(turn, group)
    else:
        _become_empty(turn, group)


def _become_empty(turn: Turn, group: Group) -> None:
    group.become(GroupState.EMPTY)
    turn.write(
        group.snapshot(
            at_ms=turn.at_ms,
            generation=group.generation + 1,
            protocol=None,
            awaiting_sync=False,
            assignments={},
        )
    )
    turn.notice(group, Happening.EMPTIED)


def _start_generation(turn: Turn, group: Group) -> None:
    """Store the generation before anybody hears of it, then answer all who joined.

    Kafka stores it with the assignments only. Storing it here is what the client-side assignment
    proposal asks for: a coordinator that takes over knows that a sync is under way.
    """
    group.become(GroupState.COMPLETING_REBALANCE)
    protocol = group.vote()
    group.prefer_newest(protocol)
    turn.write(
        group.snapshot(
            at_ms=turn.at_ms,
            generation=group.generation + 1,
            protocol=protocol,
            awaiting_sync=True,
            assignments={},
        )
    )
    group.unsynced = dict.fromkeys(group.members)
    joined_ms = tuple(
        None if m.join_ticket is None else m.joined_ms for m in group.members.values()
    )
    for member in group.members.values():
        leads = member.id == group.leader
        answer_join(turn, group, member, generation_reply(group, member, with_members=leads))
        member.is_new = False
        turn.keep_alive(member)
    turn.arm(SyncTimer(group.id), group.rebalance_timeout_ms())
    turn.notice(group, Happening.GENERATION_STARTED, group.leader, times_ms=joined_ms)


def sync_time_is_up(turn: Turn, group: Group) -> None:
    """Members that never asked for their assignment are gone (KAFKA-12890)."""
    silent = list(group.unsynced)
    cause = Cause.NOT_SYNCED
    for member_id in silent:
        member = group.members[member_id]
        dismiss(turn, group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        turn.notice(group, Happening.EXPIRED, member_id, cause, cause=cause, member=member)
    reason = f"members that never asked for their assignment: {len(silent)}"
    start(turn, group, cause, reason, next(iter(silent), None))


# Members going.


def after_departure(turn: Turn, group: Group, cause: Cause, reason: str, member_id: str) -> None:
    """Somebody is gone: the others share anew, or need not wait for it any longer."""
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        start(turn, group, cause, reason, member_id)
    else:
        end_join_if_complete(turn, group)


def session_is_over(turn: Turn, group: Group, member_id: str) -> None:
    """The member, or the one that was to become one, has not been heard of in time."""
    if member_id in group.pending:
        forget_pending(turn, group, member_id)
        end_join_if_complete(turn, group)
        return
    member = group.members[member_id]
    # A client that still waits, parked as a new member for five minutes, may ask again.
    dismiss(turn, group, member, ErrorCode.UNKNOWN_MEMBER_ID)
    cause = Cause.SESSION_EXPIRED
    reason = "no heartbeat within its session timeout"
    turn.notice(group, Happening.EXPIRED, member_id, reason, cause=cause, member=member)
    after_departure(turn, group, cause, f"member {member_id} was not heard of in time", member_id)
