"""The invariants of a member with the consumer group protocol; tests check them after every event.

1. The session timer runs exactly while the member is in the group.
2. A member that reports has a heartbeat in flight, or a heartbeat that is due, or the heartbeat
   timer. The timer does not run otherwise.
3. The poll timer runs exactly while the member takes part in the group, or gives up partitions as
   a member of it, and is not in a poll.
4. The retry timer runs exactly during a back-off, the request timer exactly during a leave.
5. The coordinator is known, or being looked up, or the lookup waits for a back-off. This includes a
   leaving member that is in the group, or has to send the last heartbeat. No other one backs off.
6. The names of unknown topics are being looked up, or the metadata timer runs.
7. The states of the group are reached only with an epoch.
8. Only a member of the group owns partitions, unless the listener is still to be called for the
   loss. A member that joins owns none.
9. Only owned partitions are delivered, and none of an open callback. A member outside the group, or
   after a session without a response, delivers none.
10. Every partition of an open callback is owned. Only ``assigned`` is called without partitions.
11. A stable member owns exactly its assignment.
12. A reconciling member waits for a callback, or for the name of a topic.
"""

from __future__ import annotations

from collections.abc import Mapping

from partage.member.consumer_group.member import ConsumerMemberBase
from partage.member.consumer_group.states import (
    ACTIVE_CONSUMER_STATES,
    IN_GROUP_STATES,
    REPORTING_STATES,
    ConsumerMemberState,
)
from partage.member.outcome import ListenerCallback
from partage.member.timers import MemberTimer

_S = ConsumerMemberState


def check_consumer_member(member: ConsumerMemberBase, armed: Mapping[MemberTimer, int]) -> None:
    """Check all invariants. Raise `AssertionError` if one is violated."""
    heartbeats_match_state(member, armed)
    other_timers_match_state(member, armed)
    coordinator_is_looked_up(member)
    topic_names_are_looked_up(member, armed)
    epoch_matches_state(member)
    partitions_match_state(member)
    deliverable_partitions_are_safe(member)
    open_callback_is_about_owned_partitions(member)


def heartbeats_match_state(member: ConsumerMemberBase, armed: Mapping[MemberTimer, int]) -> None:
    """Invariants 1 and 2."""
    assert (MemberTimer.SESSION in armed) == member.is_in_group, f"session timer, {member.state}"
    is_sending = member.in_flight is not None or member.is_heartbeat_due
    is_reporting = member.state in REPORTING_STATES and (
        member.is_in_group or member.state is _S.JOINING
    )
    is_armed = MemberTimer.HEARTBEAT in armed
    assert is_armed == (is_reporting and not is_sending), f"heartbeat timer, {member.state}"
    assert is_reporting or not is_sending, f"a heartbeat in {member.state}"


def other_timers_match_state(member: ConsumerMemberBase, armed: Mapping[MemberTimer, int]) -> None:
    """Invariants 3 and 4."""
    is_polled = member.settings.max_poll_interval_ms is not None and not member.is_in_poll
    is_revoking = member.state is _S.PREPARE_LEAVING and member.is_in_group
    expected = is_polled and (is_revoking or member.state in ACTIVE_CONSUMER_STATES)
    assert (MemberTimer.POLL in armed) == expected, f"poll timer, {member.state}"
    assert (MemberTimer.RETRY in armed) == member.link.is_backing_off, (
        f"retry timer, {member.state}"
    )
    is_leaving = member.state is _S.LEAVING
    assert (MemberTimer.REQUEST in armed) == is_leaving, f"request timer, {member.state}"
    has_sent = member.awaited_serial is not None
    assert (has_sent or member.is_leave_due) == is_leaving or (
        member.state is _S.PREPARE_LEAVING and not has_sent
    ), f"awaits a leave, {member.state}"
    assert not (has_sent and member.is_leave_due), "leaves twice"


def coordinator_is_looked_up(member: ConsumerMemberBase) -> None:
    """Invariant 5."""
    link = member.link
    needs_coordinator = (
        member.state in ACTIVE_CONSUMER_STATES or member.is_in_group or member.is_leave_due
    )
    is_leaving = member.state is _S.LEAVING
    assert needs_coordinator or is_leaving or not link.is_backing_off, f"backs off, {member.state}"
    if needs_coordinator:
        assert (
            link.coordinator_serial is not None
            or link.lookup_serial is not None
            or link.is_backing_off
        ), f"{member.state}, and no lookup is in progress"


def topic_names_are_looked_up(member: ConsumerMemberBase, armed: Mapping[MemberTimer, int]) -> None:
    """Invariant 6."""
    is_sought = (member.resolving_serial is not None) + (MemberTimer.METADATA in armed)
    assert is_sought == bool(member.unknown_topic_ids()), f"topic names, {member.state}"


def epoch_matches_state(member: ConsumerMemberBase) -> None:
    """Invariant 7."""
    if member.is_in_group:
        assert member.state in IN_GROUP_STATES, f"{member.state} with epoch {member.epoch}"
    else:
        allowed = member.state not in IN_GROUP_STATES or member.state is _S.PREPARE_LEAVING
        assert allowed, f"{member.state} without an epoch"
        assert member.assignment is None, f"an assignment in {member.state}"


def partitions_match_state(member: ConsumerMemberBase) -> None:
    """Invariants 8, 11 and 12."""
    call = member.open_callback
    has_call = call is not None and bool(call.partitions)
    if member.owned_ids and not member.is_in_group:
        assert has_call, f"{sorted(member.owned)} is owned outside the group"
    if member.state in (_S.JOINING, _S.LEAVING, _S.UNSUBSCRIBED):
        assert not member.owned_ids, f"{member.state} with {sorted(member.owned)}"
    if member.state is _S.STABLE:
        owned = {(topic_id, p[1]) for p, topic_id in member.owned_ids.items()}
        assigned = set(member.assignment or ())
        assert owned == assigned, f"stable with {owned} of {assigned}"
    if member.state is _S.RECONCILING and not has_call:
        assert member.unknown_topic_ids(), "reconciling, and nothing blocks it"


def deliverable_partitions_are_safe(member: ConsumerMemberBase) -> None:
    """Invariant 9."""
    deliverable = member.deliverable
    assert deliverable <= member.owned, "delivered, but not owned"
    call = member.open_callback
    assert call is None or not deliverable & set(call.partitions), f"delivered, despite {call}"
    if not member.is_in_group or member.link.is_session_expired:
        assert not deliverable, f"{sorted(deliverable)} is delivered outside a valid session"


def open_callback_is_about_owned_partitions(member: ConsumerMemberBase) -> None:
    """Invariant 10."""
    call = member.open_callback
    if call is not None and call.partitions:
        assert set(call.partitions) <= member.owned, f"{call} is about partitions not owned"
    elif call is not None:
        assert call.callback is ListenerCallback.ASSIGNED, f"{call} has no partitions"
