"""Handlers of JoinGroup and SyncGroup: from a rejoin request to an applied assignment."""

from __future__ import annotations

from partage.member.events import (
    Adopted,
    Assigned,
    AssignFailed,
    JoinAnswered,
    Prepared,
    PrepareFailed,
    SyncAnswered,
)
from partage.member.member import Member
from partage.member.outcome import Adopt, Assign, Problem, Report, SendJoin, SendSync, Watch
from partage.member.reactions import Reaction, Request, reaction
from partage.member.states import MemberState
from partage.member.timers import Timer
from partage.member.turn import Turn
from partage.model.errors import ErrorCode


def prepared(member: Member, turn: Turn, event: Prepared) -> None:
    """Send JoinGroup with the encoded metadata."""
    if event.serial != member.awaited:
        return
    if member.link.coordinator is None:
        member.become(turn, MemberState.WAITING)
        return
    member.become(turn, MemberState.JOINING)
    member.protocol_names = frozenset(protocol.name for protocol in event.protocols)
    settings = member.settings
    turn.do(
        SendJoin(
            serial=member.ask(),
            member_id=member.member_id,
            instance_id=settings.instance_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            protocol_type=settings.protocol_type,
            protocols=event.protocols,
            reason=member.reason,
        )
    )
    _time_parked(member, turn)


def prepare_failed(member: Member, turn: Turn, event: PrepareFailed) -> None:
    """Fail, because there is no metadata to join with."""
    if event.serial == member.awaited:
        member.fail(turn, ErrorCode.UNKNOWN_SERVER_ERROR, event.reason)


def _time_parked(member: Member, turn: Turn) -> None:
    settings = member.settings
    # JoinGroup v0 has no rebalance timeout: the session timeout is used for both.
    longest_ms = max(settings.rebalance_timeout_ms, settings.session_timeout_ms)
    parked_ms = longest_ms + settings.parked_lapse_ms
    turn.arm(Timer.REQUEST, max(parked_ms, settings.request_timeout_ms))


def join_answered(member: Member, turn: Turn, event: JoinAnswered) -> None:
    """Start the generation, or react to the error."""
    if event.serial != member.awaited:
        return
    answer = reaction(Request.JOIN, event.error)
    if answer is Reaction.GO_ON:
        _joined(member, turn, event)
    elif answer is Reaction.TAKE_ID:
        member.member_id = event.member_id
        member.reason = "rejoin with the given member id"
        member.become(turn, MemberState.WAITING)
    else:
        member.react(turn, answer, event, Request.JOIN)


def _joined(member: Member, turn: Turn, event: JoinAnswered) -> None:
    """Start the generation. Owned partitions belong to an earlier one until the sync."""
    if event.protocol_type not in (None, member.settings.protocol_type):
        wrong = f"the group's protocol type is {event.protocol_type}"
        member.fail(turn, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, wrong)
        return
    if event.protocol is None or event.protocol not in member.protocol_names:
        wrong = f"the coordinator chose {event.protocol}, which this member did not offer"
        member.fail(turn, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, wrong)
        return
    member.member_id = event.member_id
    member.generation = event.generation
    member.protocol = event.protocol
    member.is_leader = event.leader == event.member_id
    member.link.is_lapsed = False
    if member.is_leader and not event.skip_assignment:
        member.become(turn, MemberState.ASSIGNING)
        turn.do(
            Assign(
                serial=member.ask(),
                generation=event.generation,
                protocol=event.protocol,
                members=event.members,
            )
        )
        return
    if member.is_leader:
        turn.do(Watch(members=event.members))
    _sync(member, turn, {}, None)


def assigned(member: Member, turn: Turn, event: Assigned) -> None:
    """Send the computed assignment to the coordinator."""
    if event.serial == member.awaited:
        _sync(member, turn, event.assignments, None)


def assign_failed(member: Member, turn: Turn, event: AssignFailed) -> None:
    """Report the failure in SyncGroup, so that the group does not wait for a timeout."""
    if event.serial == member.awaited:
        _sync(member, turn, event.assignments, event.reason)


def _sync(member: Member, turn: Turn, assignments: dict[str, bytes], error: str | None) -> None:
    if member.link.coordinator is None:  # The next coordinator may not know the generation
        member.become(turn, MemberState.WAITING)
        return
    assert member.protocol is not None
    member.become(turn, MemberState.SYNCING)
    turn.do(
        SendSync(
            serial=member.ask(),
            generation=member.generation,
            member_id=member.member_id,
            instance_id=member.settings.instance_id,
            protocol_type=member.settings.protocol_type,
            protocol=member.protocol,
            assignments=assignments,
            assignment_error=error,
        )
    )
    _time_parked(member, turn)


def sync_answered(member: Member, turn: Turn, event: SyncAnswered) -> None:
    """Apply the assignment, or react to the error."""
    if event.serial != member.awaited:
        return
    if event.assignment_error is not None:
        reason = event.assignment_error
        turn.do(Report(problem=Problem.ASSIGNMENT_FAILED, reason=reason))
    answer = reaction(Request.SYNC, event.error)
    if answer is Reaction.GO_ON:
        _synced(member, turn, event)
    elif answer is Reaction.JOIN_AGAIN and event.assignment_error is not None:
        member.react(turn, Reaction.JOIN_LATER, event, Request.SYNC)
    else:
        member.react(turn, answer, event, Request.SYNC)


def _synced(member: Member, turn: Turn, event: SyncAnswered) -> None:
    assert member.protocol is not None
    said = (event.protocol_type, member.settings.protocol_type), (event.protocol, member.protocol)
    if any(theirs not in (None, ours) for theirs, ours in said):
        named = f"{event.protocol_type} {event.protocol}"
        wrong = f"SyncGroup names protocol {named}, not {member.protocol}"
        member.fail(turn, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, wrong)
        return
    member.become(turn, MemberState.ADOPTING)
    turn.do(
        Adopt(
            serial=member.ask(),
            generation=member.generation,
            protocol=member.protocol,
            assignment=event.assignment,
        )
    )


def adopted(member: Member, turn: Turn, event: Adopted) -> None:
    """Become stable after the assignment is applied; rejoin if that is pending."""
    if event.serial != member.awaited:
        return
    member.become(turn, MemberState.STABLE)
    member.link.healed()
    if member.is_rejoin_wanted:
        member.become(turn, MemberState.WAITING)
