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
    """Check the invariants of the membership. Raise `AssertionError` if one is violated."""
    session_is_timed(member, armed)
    polls_are_timed(member, armed)
    patience_is_timed(member, armed)
    gathering_is_timed(member, armed)
    answers_are_awaited(member)
    coordinator_is_sought(member)
    nobody_waits_for_nothing(member)
    generation_fits_state(member)


def check_ownership(ownership: Ownership, armed: Armed) -> None:
    """Check the invariants of a member that owns partitions, including those of its membership."""
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
    assert (Timer.METADATA in armed) == bool(member.gathered), (
        f"pending topic changes: {member.gathered}"
    )
    assert not member.gathered or member.state in INSIDE, f"pending topic changes, {member.state}"


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
        assert link.coordinator is not None or sought, (
            f"{member.state}, and no lookup is in progress"
        )
    assert link.coordinator is None or link.finding is None, "looks up a known coordinator"


def nobody_waits_for_nothing(member: Member) -> None:
    """Invariant 6."""
    if member.state is MemberState.WAITING:
        held = member.link.coordinator is None or member.link.is_backing_off
        assert held, "unjoined, and nothing blocks it"
    if member.state is MemberState.STABLE:
        assert not member.is_rejoin_wanted, "stable, and a rejoin is pending"


def generation_fits_state(member: Member) -> None:
    """Invariant 7."""
    if member.is_in_generation:
        assert member.member_id, f"generation {member.generation} without a member id"
        assert member.state not in _NEVER_IN_GENERATION, f"{member.state} in a generation"
    else:
        assert member.state not in _IN_GENERATION, f"{member.state} in no generation"
        assert not member.is_leader, "is leader in no generation"


def owners_are_members(ownership: Ownership) -> None:
    """Invariant 8."""
    if not ownership.owned or ownership.membership.is_in_generation:
        return
    told = ownership.told
    assert told is not None, f"{sorted(ownership.owned)} is owned in no generation"
    leaves = ownership.membership.state is MemberState.RELEASING
    is_told = told.call is Call.LOST and set(told.partitions) == ownership.owned
    assert ownership.is_lost or is_told or leaves, "owned in no generation, and no callback is open"


def deliveries_are_owned(ownership: Ownership) -> None:
    """Invariant 9."""
    deliverable = ownership.deliverable
    assert deliverable <= ownership.owned, "delivered, but not owned"
    told = ownership.told
    assert told is None or not deliverable & set(told.partitions), f"delivered, despite {told}"
    if not ownership.membership.is_in_generation or ownership.membership.link.is_lapsed:
        assert not deliverable, f"{sorted(deliverable)} is delivered outside a valid session"


def eager_members_own_nothing_while_joining(ownership: Ownership) -> None:
    """Invariant 10."""
    if ownership.rebalance_protocol is RebalanceProtocol.EAGER:
        joins = ownership.membership.state in PARKED | {MemberState.ASSIGNING}
        assert not (joins and ownership.owned), f"joins with {sorted(ownership.owned)}"


def calls_are_about_owned(ownership: Ownership) -> None:
    """Invariant 12."""
    told = ownership.told
    if told is not None:
        assert set(told.partitions) <= ownership.owned, (
            f"{told} is about partitions that are not owned: {ownership.owned}"
        )
        assert told.partitions or told.call is Call.ASSIGNED, f"{told} has no partitions"


def calls_about_nothing_hold_nobody_up(ownership: Ownership) -> None:
    """Invariant 13."""
    told = ownership.told
    if told is None or told.partitions:
        return
    assert not ownership.is_lost, "lost, and no callback is open"
    waits = False
    match ownership.task:
        case Preparing(described=described):
            waits = not described
        case Adopting(target=target):
            waits = target is not None
        case Releasing():
            waits = True
    assert not waits, f"{ownership.task} waits for {told}"
