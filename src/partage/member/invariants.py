"""What holds of a member after every event, one function each; tests run them all.

1. Heartbeat and session are timed exactly while the member is in a generation and not parked.
2. The poll timer runs only inside the group, and exactly while nobody waits in a poll.
3. The retry timer runs exactly while the member backs off, the request timer exactly while a
   request is under way that may take long.
4. The member waits for an answer exactly in the states that ask for one.
5. The coordinator is known, looked for, or not yet looked for again because of a back-off.
6. A member that waits to join is held up by something.
7. Who is in a generation has a member id; the states of a generation are reached in one.
8. Only a member of a generation owns something, unless the listener has yet to hear of the loss.
9. Nothing is delivered that is not owned, or that a callback is about; nothing at all outside a
   generation, or after a whole session without a sign from the coordinator.
10. Under the eager protocol nothing is owned between JoinGroup and the new assignment.
11. The metadata timer runs exactly while changes are gathered, and only inside the group.
12. What the listener is at is owned, unless it is being told that it was lost.
13. No step waits for a call about nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from partage.member.member import Member
from partage.member.outcome import Call
from partage.member.ownership import Adopting, Ownership, Preparing, RebalanceProtocol, Releasing
from partage.member.states import ASKING, BEATING, INSIDE, PARKED, MemberState
from partage.member.timers import Timer

Armed = Mapping[Timer, int]

_IN_GENERATION = frozenset(
    {MemberState.ASSIGNING, MemberState.SYNCING, MemberState.ADOPTING, MemberState.STABLE}
)
_NEVER_IN_GENERATION = frozenset(
    {MemberState.OUT, MemberState.DORMANT, MemberState.LEAVING, MemberState.FAILED}
)


def check(member: Member, armed: Armed) -> None:
    """Raise `AssertionError` with the story if an invariant of the membership does not hold."""
    session_is_timed(member, armed)
    polls_are_timed(member, armed)
    patience_is_timed(member, armed)
    gathering_is_timed(member, armed)
    answers_are_awaited(member)
    coordinator_is_sought(member)
    nobody_waits_for_nothing(member)
    generation_fits_state(member)


def check_ownership(ownership: Ownership, armed: Armed) -> None:
    """The same for a member that owns partitions, and what it owns."""
    check(ownership.membership, armed)
    owners_are_members(ownership)
    deliveries_are_owned(ownership)
    eager_members_own_nothing_while_joining(ownership)
    calls_are_about_owned(ownership)
    calls_about_nothing_hold_nobody_up(ownership)


def session_is_timed(member: Member, armed: Armed) -> None:
    """Invariant 1."""
    expected = member.is_in_generation and member.state in BEATING
    for key in (Timer.HEARTBEAT, Timer.SESSION):
        assert (key in armed) == expected, f"{key} timer, {member.state}, {member.generation}"
    assert (member.link.session_ends_ms is not None) == expected


def polls_are_timed(member: Member, armed: Armed) -> None:
    """Invariant 2."""
    has_to_be = member.settings.max_poll_interval_ms is not None
    expected = has_to_be and member.state in INSIDE and not member.is_polled
    assert (Timer.POLL in armed) == expected, f"poll timer, {member.state}, {member.is_polled}"


def patience_is_timed(member: Member, armed: Armed) -> None:
    """Invariant 3."""
    assert (Timer.RETRY in armed) == member.link.is_backing_off, f"retry timer, {member.state}"
    is_asking = member.state in PARKED or member.state is MemberState.LEAVING
    assert (Timer.REQUEST in armed) == is_asking, f"request timer, {member.state}"


def gathering_is_timed(member: Member, armed: Armed) -> None:
    """Invariant 11."""
    assert (Timer.METADATA in armed) == bool(member.gathered), f"gathered: {member.gathered}"
    assert not member.gathered or member.state in INSIDE, f"gathers, {member.state}"


def answers_are_awaited(member: Member) -> None:
    """Invariant 4."""
    awaits = member.awaited is not None
    assert awaits == (member.state in ASKING), f"{member.state} awaits {member.awaited}"
    if member.state in PARKED or member.state is MemberState.LEAVING:
        parked = member.link.coordinator is not None or member.was_parked
        assert parked, f"{member.state} without a coordinator"


def coordinator_is_sought(member: Member) -> None:
    """Invariant 5."""
    link = member.link
    if member.state in INSIDE:
        sought = link.finding is not None or link.is_backing_off
        assert link.coordinator is not None or sought, f"{member.state}, nobody looks"
    assert link.coordinator is None or link.finding is None, "looks for what it knows"


def nobody_waits_for_nothing(member: Member) -> None:
    """Invariant 6."""
    if member.state is MemberState.WAITING:
        held = member.link.coordinator is None or member.link.is_backing_off
        assert held, "waits with nothing in its way"
    if member.state is MemberState.STABLE:
        assert not member.is_rejoin_wanted, "stable, and should have joined again"


def generation_fits_state(member: Member) -> None:
    """Invariant 7."""
    if member.is_in_generation:
        assert member.member_id, f"generation {member.generation} without a member id"
        assert member.state not in _NEVER_IN_GENERATION, f"{member.state} in a generation"
    else:
        assert member.state not in _IN_GENERATION, f"{member.state} in no generation"
        assert not member.is_leader, "leads no generation"


def owners_are_members(ownership: Ownership) -> None:
    """Invariant 8."""
    if not ownership.owned or ownership.membership.is_in_generation:
        return
    told = ownership.told
    assert told is not None, f"{sorted(ownership.owned)} is owned in no generation"
    leaves = ownership.membership.state is MemberState.RELEASING
    is_told = told.call is Call.LOST and set(told.partitions) == ownership.owned
    assert ownership.is_lost or is_told or leaves, "owned in no generation, and nobody is told"


def deliveries_are_owned(ownership: Ownership) -> None:
    """Invariant 9."""
    deliverable = ownership.deliverable
    assert deliverable <= ownership.owned, "delivered, and not owned"
    told = ownership.told
    assert told is None or not deliverable & set(told.partitions), f"delivered, despite {told}"
    if not ownership.membership.is_in_generation or ownership.membership.link.is_lapsed:
        assert not deliverable, f"{sorted(deliverable)} is delivered by a zombie"


def eager_members_own_nothing_while_joining(ownership: Ownership) -> None:
    """Invariant 10."""
    if ownership.rebalance_protocol is RebalanceProtocol.EAGER:
        joins = ownership.membership.state in PARKED | {MemberState.ASSIGNING}
        assert not (joins and ownership.owned), f"joins with {sorted(ownership.owned)}"


def calls_are_about_owned(ownership: Ownership) -> None:
    """Invariant 12."""
    told = ownership.told
    if told is not None:
        assert set(told.partitions) <= ownership.owned, f"{told} is not about {ownership.owned}"
        assert told.partitions or told.call is Call.ASSIGNED, f"{told} is about nothing"


def calls_about_nothing_hold_nobody_up(ownership: Ownership) -> None:
    """Invariant 13."""
    told = ownership.told
    if told is None or told.partitions:
        return
    assert not ownership.is_lost, "lost, and nobody is told"
    waits = False
    match ownership.task:
        case Preparing(described=described):
            waits = not described
        case Adopting(target=target):
            waits = target is not None
        case Releasing():
            waits = True
    assert not waits, f"{ownership.task} waits for {told}"
