"""Invariants of the designs with JoinGroup, which tests and worlds check after each event.

Coordinator:

1. Exactly the members with a parked request count as parked, and exactly the connections of these
   requests lead back to their members.
2. An empty group has no members, no protocol type and no synchronizer. Other groups have members.
3. A group waits in the join phase or for its synchronizer exactly while the timer of that wait is
   armed. No phase waits for members that have all joined, except for the initial delay.
4. A parked member has no session timer. In a stable group every member has one, and no request is
   parked.
5. The synchronizer is a member, and its request is not parked.
6. No timer is armed for a member that does not exist.
7. The expiration timer is armed exactly while a group is empty.

Member:

8. A member owns partitions only in a generation, and reads only partitions that it owns.
9. The session timer is armed while the member owns partitions.
10. A stable member has a request in flight or a heartbeat timer, and a commit timer if it reads.
11. Exactly a request in flight has a timeout.
12. A member without a connection waits for one or for the next try.
13. A member that has stopped owns nothing, and has no timer. A member that joins has no timer for
    Heartbeats or commits.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from partage.proposals.join_group.coordinator import JoinGroupCoordinator
from partage.proposals.join_group.group import (
    DesignGroup,
    DesignGroupState,
    ExpirationTimer,
    JoinPhaseTimer,
    MemberSessionTimer,
    SynchronizeTimer,
)
from partage.proposals.join_group.member import DesignMember, DesignMemberState, Timer


def check_coordinator(coordinator: JoinGroupCoordinator, armed: Mapping[Hashable, int]) -> None:
    """Raise `AssertionError` with details if an invariant does not hold.

    Args:
        coordinator: The coordinator.
        armed: The deadlines of its armed timers.
    """
    parked = sum(group.parked_count for group in coordinator.groups.values())
    assert parked == len(coordinator._parked), f"{parked} are parked: {coordinator._parked}"
    for group in coordinator.groups.values():
        _check_parked(coordinator, group)
        _check_state(group)
        _check_timers(group, armed)
    for key in armed:
        if isinstance(key, MemberSessionTimer):
            members = coordinator.groups[key.group_id].members
            assert key.member_id in members, f"{key} is armed for a member that does not exist"


def _check_parked(coordinator: JoinGroupCoordinator, group: DesignGroup) -> None:
    parked = [member for member in group.members.values() if member.is_parked]
    assert group.parked_count == len(parked), f"{group.parked_count} of {len(parked)} are parked"
    for member in parked:
        assert member.connection is not None
        known = coordinator._parked.get(member.connection)
        assert known == (group.id, member.id), f"{member.connection} leads to {known}"
    orders = [member.join_order for member in parked]
    assert len(set(orders)) == len(orders), f"joins have the same order: {orders}"
    numbers = [member.number for member in group.members.values()]
    assert len(set(numbers)) == len(numbers), f"members have the same number: {numbers}"


def _check_state(group: DesignGroup) -> None:
    is_empty = group.state is DesignGroupState.EMPTY
    assert is_empty != bool(group.members), f"{group.state} with {len(group.members)} members"
    if is_empty:
        assert not group.protocol_type, "an empty group has a protocol type"
    if group.is_delayed:
        assert group.state is DesignGroupState.JOINING, f"{group.state} has an initial delay"
    elif group.state is DesignGroupState.JOINING:
        assert not group.has_all_joined, "all have joined, and the join phase continues"
    if group.state is DesignGroupState.STABLE:
        assert not group.parked_count, "a request is parked in a stable group"
    if group.state in (DesignGroupState.EMPTY, DesignGroupState.JOINING):
        assert group.synchronizer is None, f"{group.state} has a synchronizer"
    if group.state is DesignGroupState.SYNCHRONIZING:
        assert group.synchronizer is not None, "the group waits for no synchronizer"
    if group.synchronizer is not None:
        synchronizer = group.members.get(group.synchronizer)
        assert synchronizer is not None, "the synchronizer is no member"
        assert not synchronizer.is_parked, "the request of the synchronizer is parked"


def _check_timers(group: DesignGroup, armed: Mapping[Hashable, int]) -> None:
    for key, state in (
        (JoinPhaseTimer(group.id), DesignGroupState.JOINING),
        (SynchronizeTimer(group.id), DesignGroupState.SYNCHRONIZING),
        (ExpirationTimer(group.id), DesignGroupState.EMPTY),
    ):
        assert (key in armed) == (group.state is state), f"{group.state}, and {key}: {key in armed}"
    for member in group.members.values():
        has_session = MemberSessionTimer(group.id, member.id) in armed
        if member.is_parked:
            assert not has_session, f"{member.id} is parked and has a session timer"
        elif group.state is DesignGroupState.STABLE:
            assert has_session, f"{member.id} has no session timer"


def check_member(member: DesignMember, armed: Mapping[Hashable, int]) -> None:
    """Raise `AssertionError` with details if an invariant does not hold.

    Args:
        member: The member.
        armed: The deadlines of its armed timers.
    """
    state = member.state
    if member.owned:
        assert member.generation >= 0, "a member without a generation owns partitions"
        assert Timer.SESSION in armed, "no session timer is armed"
    else:
        assert not member.is_reading, "the member reads without partitions"
    has_timeout = Timer.REQUEST in armed
    assert has_timeout == (member._in_flight is not None), f"{state}, request timer: {has_timeout}"
    if state in (DesignMemberState.JOINING, DesignMemberState.SYNCHRONIZING):
        assert not member.owned, f"{state} with partitions"
        needless = {Timer.HEARTBEAT, Timer.COMMIT} & armed.keys()
        assert not needless, f"{state}, and {needless} are armed"
    if state is DesignMemberState.STABLE:
        assert member._in_flight is not None or Timer.HEARTBEAT in armed, "no heartbeat will follow"
        if member.is_reading:
            assert Timer.COMMIT in armed, "no commit will follow"
    if state is DesignMemberState.STOPPED:
        assert not member.owned, "a stopped member owns partitions"
        assert not armed, f"a stopped member has timers: {armed}"
