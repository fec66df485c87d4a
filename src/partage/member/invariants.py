"""The invariants of a member after every event, one function each; tests check them all.

1. The heartbeat and session timers run exactly while the member is in a generation and not parked.
2. The poll timer runs exactly while the member takes part in the group and is not in a poll.
3. The retry timer runs exactly during a back-off, the request timer exactly while a request is in
   flight that may take long.
4. The member waits for a serial exactly in the states that have one.
5. The coordinator is known, or being looked up, or the lookup waits for a back-off.
6. An Unjoined member is blocked by the lookup or a back-off.
7. A member in a generation has a member id; the states of a generation are reached only in one.
8. Only a member of a generation owns partitions, unless the listener is still to be called for
   the loss.
9. Only owned partitions are delivered, and none of an open callback. A member in no generation, or
   after a session without a response, delivers none.
10. Under the eager protocol a member owns no partition between JoinGroup and the new assignment.
11. The metadata timer runs exactly while topic changes are pending, and only inside the group.
12. Every partition of an open callback is owned.
13. No step waits for a callback without partitions.
"""

from __future__ import annotations

from collections.abc import Mapping

from partage.member.member import Member
from partage.member.outcome import ListenerCallback
from partage.member.ownership import (
    ApplyingAssignment,
    Ownership,
    PreparingJoin,
    ReleasingAssignment,
)
from partage.member.states import (
    ACTIVE_STATES,
    AWAITING_STATES,
    HEARTBEATING_STATES,
    PARKED_STATES,
    MemberState,
)
from partage.member.timers import MemberTimer
from partage.model.rebalance_protocol import RebalanceProtocol

ArmedTimers = Mapping[MemberTimer, int]

_IN_GENERATION = frozenset(
    {MemberState.ASSIGNING, MemberState.SYNCING, MemberState.RECONCILING, MemberState.STABLE}
)
_NEVER_IN_GENERATION = frozenset(
    {MemberState.UNSUBSCRIBED, MemberState.STALE, MemberState.LEAVING, MemberState.FATAL}
)


def check_member(member: Member, armed: ArmedTimers) -> None:
    """Check the invariants of the membership. Raise `AssertionError` if one is violated."""
    session_timers_match_state(member, armed)
    poll_timer_matches_state(member, armed)
    retry_and_request_timers_match_state(member, armed)
    metadata_timer_matches_changes(member, armed)
    awaited_serial_matches_state(member)
    coordinator_is_known_or_looked_up(member)
    waiting_member_is_blocked(member)
    generation_matches_state(member)


def check_ownership(ownership: Ownership, armed: ArmedTimers) -> None:
    """Check the invariants of a member that owns partitions, including those of its membership."""
    check_member(ownership.membership, armed)
    owned_partitions_have_generation(ownership)
    deliverable_partitions_are_owned(ownership)
    eager_members_own_nothing_while_joining(ownership)
    callbacks_are_about_owned_partitions(ownership)
    empty_callbacks_block_nothing(ownership)


def session_timers_match_state(member: Member, armed: ArmedTimers) -> None:
    """Invariant 1."""
    expected = member.is_in_generation and member.state in HEARTBEATING_STATES
    for key in (MemberTimer.HEARTBEAT, MemberTimer.SESSION):
        assert (key in armed) == expected, f"{key} timer, {member.state}, {member.generation}"
    has_session = member.link.session_deadline_ms is not None
    assert has_session == expected, f"session, {member.state}, {member.generation}"


def poll_timer_matches_state(member: Member, armed: ArmedTimers) -> None:
    """Invariant 2."""
    has_to_be = member.settings.max_poll_interval_ms is not None
    expected = has_to_be and member.state in ACTIVE_STATES and not member.is_in_poll
    assert (MemberTimer.POLL in armed) == expected, (
        f"poll timer, {member.state}, {member.is_in_poll}"
    )


def retry_and_request_timers_match_state(member: Member, armed: ArmedTimers) -> None:
    """Invariant 3."""
    assert (MemberTimer.RETRY in armed) == member.link.is_backing_off, (
        f"retry timer, {member.state}"
    )
    is_asking = member.state in PARKED_STATES or member.state is MemberState.LEAVING
    assert (MemberTimer.REQUEST in armed) == is_asking, f"request timer, {member.state}"


def metadata_timer_matches_changes(member: Member, armed: ArmedTimers) -> None:
    """Invariant 11."""
    assert (MemberTimer.METADATA in armed) == bool(member.pending_topic_changes), (
        f"pending topic changes: {member.pending_topic_changes}"
    )
    assert not member.pending_topic_changes or member.state in ACTIVE_STATES, (
        f"pending topic changes, {member.state}"
    )


def awaited_serial_matches_state(member: Member) -> None:
    """Invariant 4."""
    awaits = member.awaited_serial is not None
    assert awaits == (member.state in AWAITING_STATES), (
        f"{member.state} awaits {member.awaited_serial}"
    )
    if member.state in PARKED_STATES or member.state is MemberState.LEAVING:
        parked = member.link.coordinator_serial is not None or member.was_request_parked
        assert parked, f"{member.state} without a coordinator"


def coordinator_is_known_or_looked_up(member: Member) -> None:
    """Invariant 5."""
    link = member.link
    if member.state in ACTIVE_STATES:
        sought = link.lookup_serial is not None or link.is_backing_off
        assert link.coordinator_serial is not None or sought, (
            f"{member.state}, and no lookup is in progress"
        )
    assert link.coordinator_serial is None or link.lookup_serial is None, (
        "looks up a known coordinator"
    )


def waiting_member_is_blocked(member: Member) -> None:
    """Invariant 6."""
    if member.state is MemberState.UNJOINED:
        held = member.link.coordinator_serial is None or member.link.is_backing_off
        assert held, "unjoined, and nothing blocks it"
    if member.state is MemberState.STABLE:
        assert not member.is_rejoin_pending, "stable, and a rejoin is pending"


def generation_matches_state(member: Member) -> None:
    """Invariant 7."""
    if member.is_in_generation:
        assert member.member_id, f"generation {member.generation} without a member id"
        assert member.state not in _NEVER_IN_GENERATION, f"{member.state} in a generation"
    else:
        assert member.state not in _IN_GENERATION, f"{member.state} in no generation"
        assert not member.is_leader, "is leader in no generation"


def owned_partitions_have_generation(ownership: Ownership) -> None:
    """Invariant 8."""
    if not ownership.owned or ownership.membership.is_in_generation:
        return
    told = ownership.open_callback
    assert told is not None, f"{sorted(ownership.owned)} is owned in no generation"
    leaves = ownership.membership.state is MemberState.PREPARE_LEAVING
    is_told = told.callback is ListenerCallback.LOST and set(told.partitions) == ownership.owned
    assert ownership.has_lost_partitions or is_told or leaves, (
        "owned in no generation, and no callback is open"
    )


def deliverable_partitions_are_owned(ownership: Ownership) -> None:
    """Invariant 9."""
    deliverable = ownership.deliverable
    assert deliverable <= ownership.owned, "delivered, but not owned"
    told = ownership.open_callback
    assert told is None or not deliverable & set(told.partitions), f"delivered, despite {told}"
    if not ownership.membership.is_in_generation or ownership.membership.link.is_session_expired:
        assert not deliverable, f"{sorted(deliverable)} is delivered outside a valid session"


def eager_members_own_nothing_while_joining(ownership: Ownership) -> None:
    """Invariant 10."""
    if ownership.rebalance_protocol is RebalanceProtocol.EAGER:
        joins = ownership.membership.state in PARKED_STATES | {MemberState.ASSIGNING}
        assert not (joins and ownership.owned), f"joins with {sorted(ownership.owned)}"


def callbacks_are_about_owned_partitions(ownership: Ownership) -> None:
    """Invariant 12."""
    told = ownership.open_callback
    if told is not None:
        assert set(told.partitions) <= ownership.owned, (
            f"{told} is about partitions that are not owned: {ownership.owned}"
        )
        assert told.partitions or told.callback is ListenerCallback.ASSIGNED, (
            f"{told} has no partitions"
        )


def empty_callbacks_block_nothing(ownership: Ownership) -> None:
    """Invariant 13."""
    told = ownership.open_callback
    if told is None or told.partitions:
        return
    assert not ownership.has_lost_partitions, "lost, and no callback is open"
    waits = False
    match ownership.step:
        case PreparingJoin(has_subscription=described):
            waits = not described
        case ApplyingAssignment(target=target):
            waits = target is not None
        case ReleasingAssignment():
            waits = True
    assert not waits, f"{ownership.step} waits for {told}"
