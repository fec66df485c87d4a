"""SyncGroup: the leader sends the assignment, and each member gets its part."""

from __future__ import annotations

from partage.coordinator import rebalance
from partage.coordinator.answers import ANSWERS, ERRORS, Answer, Row
from partage.coordinator.events import Sync
from partage.coordinator.group import Group
from partage.coordinator.member import Member
from partage.coordinator.outcome import Cause, Happening
from partage.coordinator.replies import SyncReply
from partage.coordinator.states import GroupState
from partage.coordinator.timers import SyncTimer
from partage.coordinator.turn import Turn
from partage.model.errors import ErrorCode


def sync(turn: Turn, group: Group, event: Sync) -> None:
    """Handle a Sync for an existing group."""
    member = _identify(group, event)
    if isinstance(member, ErrorCode):
        turn.reply(event.reply_to, SyncReply(error=member))
        return
    row = Row.SYNC_LEADER if member.id == group.leader else Row.SYNC_FOLLOWER
    match ANSWERS[row][group.state]:
        case Answer.ASSIGN if event.assignment_error is not None:
            rebalance.park_sync(turn, member, event.reply_to)
            _fail(turn, group, event.assignment_error)
        case Answer.ASSIGN:
            rebalance.park_sync(turn, member, event.reply_to)
            _mark_synced(turn, group, member)
            _assign(turn, group, event.assignments)
        case Answer.AWAIT:
            rebalance.park_sync(turn, member, event.reply_to)
            _mark_synced(turn, group, member)
        case Answer.ASSIGNMENT:
            if member.id in group.unsynced:
                turn.notice(group, Happening.SYNCED, member.id)
            _mark_synced(turn, group, member)
            turn.reply(event.reply_to, _assignment(group, member))
            turn.keep_alive(member)
        case answer:
            turn.reply(event.reply_to, SyncReply(error=ERRORS[answer]))


def _identify(group: Group, event: Sync) -> Member | ErrorCode:
    member = group.identify(event.member_id, event.instance_id)
    if isinstance(member, ErrorCode):
        return member
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    said = ((event.protocol_type, group.protocol_type), (event.protocol, group.protocol))
    if any(None not in pair and pair[0] != pair[1] for pair in said):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return member


def _mark_synced(turn: Turn, group: Group, member: Member) -> None:
    if group.unsynced.pop(member.id, _ABSENT) is None and not group.unsynced:
        turn.cancel(SyncTimer(group.id))


_ABSENT = object()


def _assign(turn: Turn, group: Group, assignments: dict[str, bytes]) -> None:
    """Store the leader's assignment and reply to all parked Syncs.

    A member that the leader left out gets an empty assignment.
    """
    turn.write(
        group.snapshot(
            at_ms=turn.at_ms,
            generation=group.generation,
            protocol=group.protocol,
            awaiting_sync=False,
            assignments=assignments,
        )
    )
    group.become(GroupState.STABLE)
    group.sync_resumed = False
    times_ms = tuple(None if m.sync_ticket is None else turn.at_ms for m in group.members.values())
    for member in group.members.values():
        rebalance.answer_sync(turn, member, _assignment(group, member))
    turn.notice(group, Happening.ASSIGNED, group.leader, times_ms=times_ms)


def _fail(turn: Turn, group: Group, why: str) -> None:
    """Reply to all parked Syncs with the leader's assignment error, and start a rebalance.

    The client-side assignment proposal asks for this ("Assignment Failure"). REBALANCE_IN_PROGRESS
    makes every client rejoin; the error text is in a tagged field.
    """
    rebalance.abandon_sync(turn, group, assignment_error=why)
    reason = f"leader {group.leader} could not assign: {why}"
    rebalance.start(turn, group, Cause.ASSIGNMENT_FAILED, reason, group.leader)


def _assignment(group: Group, member: Member) -> SyncReply:
    return SyncReply(
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        assignment=group.assignments.get(member.id, b""),
    )
