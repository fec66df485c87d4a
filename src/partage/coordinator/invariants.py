"""Invariants that hold after every event, one named function each.

Tests and the simulator call `check` after each event; the broker does not.

1. The counters of a group are right: joined members, supporters of each protocol, static members,
   bytes.
2. A group has a leader exactly while it has members, and the leader is one of them.
3. Members are parked in Join only while the group is PreparingRebalance, and in Sync only while it
   is CompletingRebalance.
4. An Empty group has no members; a Stable or CompletingRebalance group has some.
5. Every member that is not parked has a session timer. A parked one has none, unless it is new.
6. Every pending member has a timer.
7. The join timer is armed exactly while the group is PreparingRebalance.
8. The sync timer is armed exactly while some member has not sent SyncGroup.
9. Every armed timer belongs to an existing group and member.
10. After the join phase, the stored generation has exactly the current members.
11. Every member of the generation supports the selected protocol.
12. After the join phase, no group is larger than ``group.max.size``.
13. The state of a phase ends with it: the initial delay with the join phase, the flag of a resumed
    sync with the sync phase.
14. Offsets, committed and pending, exist only for existing groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from partage.coordinator.group import Group
from partage.coordinator.records import GroupRecord, OffsetRecord
from partage.coordinator.shard import Shard
from partage.coordinator.states import GroupState
from partage.coordinator.timers import JoinTimer, SessionTimer, SyncTimer, TimerKey

ArmedTimers = Mapping[TimerKey, int]
_IN_GENERATION = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)


def check(shard: Shard, armed: ArmedTimers) -> None:
    """Raise `AssertionError` with details if an invariant does not hold."""
    for group in shard.groups.values():
        counts_are_right(group)
        leader_is_a_member(group)
        parked_where_expected(group)
        state_fits_members(group)
        sessions_are_timed(group, armed)
        phases_are_timed(group, armed)
        generation_is_stored(group)
        protocol_is_common(group)
        size_is_bounded(group, shard.settings.members_max)
        phases_leave_nothing_behind(group)
    no_stray_timers(shard, armed)
    offsets_have_groups(shard)


def durable_state(
    shard: Shard,
) -> tuple[
    dict[str, GroupRecord],
    dict[tuple[str, str, int], OffsetRecord],
    dict[tuple[int, str, str, int], tuple[OffsetRecord, bool]],
]:
    """Return the groups, the offsets, and the pending offsets that a replay of the log must
    restore. A pending offset comes with its producer id, and with True if it is superseded.
    """
    groups = {g.id: g.record for g in shard.groups.values() if g.record.generation}
    offsets = {
        (group_id, *partition): committed
        for group_id, of_group in shard.offsets.items()
        for partition, committed in of_group.items()
    }
    pending = {
        (producer_id, each.group_id, each.topic, each.partition): (each, is_superseded)
        for producer_id, each, is_superseded in shard.pending_offsets.entries()
    }
    return groups, offsets, pending


def counts_are_right(group: Group) -> None:
    """Invariant 1."""
    members = group.members.values()
    joined = sum(m.join_ticket is not None for m in members)
    assert group.joined_count == joined, (
        f"{group.id}: {group.joined_count} counted as joined, {joined} are"
    )
    joined_static = sum(m.join_ticket is not None and m.is_static for m in members)
    assert group.joined_static_count == joined_static, (
        f"{group.id}: {group.joined_static_count} static members counted as joined, "
        f"{joined_static} are"
    )
    support: dict[str, int] = {}
    for member in members:
        for name in member.protocol_names():
            support[name] = support.get(name, 0) + 1
    assert group.protocol_counts == support, (
        f"{group.id}: support is {support}, not {group.protocol_counts}"
    )
    static = {m.instance_id: m.id for m in members if m.instance_id is not None}
    assert group.static_members == static, (
        f"{group.id}: static members are {static}, not {group.static_members}"
    )
    assert group.record_bytes == sum(m.record_bytes for m in members), (
        f"{group.id} counts {group.record_bytes} bytes"
    )
    assert not group.pending_members.keys() & group.members.keys(), (
        f"{group.id}: an id is pending and a member"
    )


def leader_is_a_member(group: Group) -> None:
    """Invariant 2."""
    if group.members:
        assert group.leader in group.members, (
            f"{group.id} is led by {group.leader}, which is no member"
        )
    else:
        assert group.leader is None, f"{group.id} is empty and led by {group.leader}"


def parked_where_expected(group: Group) -> None:
    """Invariant 3."""
    for member in group.members.values():
        if member.join_ticket is not None:
            assert group.state is GroupState.PREPARING_REBALANCE, (
                f"{member.id} is parked in Join while {group.id} is {group.state}"
            )
        if member.sync_ticket is not None:
            assert group.state is GroupState.COMPLETING_REBALANCE, (
                f"{member.id} is parked in Sync while {group.id} is {group.state}"
            )


def state_fits_members(group: Group) -> None:
    """Invariant 4."""
    assert group.state is not GroupState.DEAD, f"{group.id} is Dead but still in the shard"
    if group.state is GroupState.EMPTY:
        assert not group.members, f"{group.id} is Empty with members {list(group.members)}"
    if group.state in _IN_GENERATION:
        assert group.members, f"{group.id} is {group.state} without members"


def sessions_are_timed(group: Group, armed: ArmedTimers) -> None:
    """Invariants 5 and 6."""
    for member in group.members.values():
        expected = not member.is_parked or member.is_new
        assert (member.session_timer in armed) == expected, (
            f"session of {member.id} is {'not ' if expected else ''}timed; "
            f"parked: {member.is_parked}, new: {member.is_new}"
        )
    for member_id in group.pending_members:
        assert SessionTimer(group.id, member_id) in armed, f"pending {member_id} is not timed"


def phases_are_timed(group: Group, armed: ArmedTimers) -> None:
    """Invariants 7 and 8."""
    preparing = group.state is GroupState.PREPARING_REBALANCE
    assert (JoinTimer(group.id) in armed) == preparing, f"join timer of {group.id}, {group.state}"
    assert (SyncTimer(group.id) in armed) == bool(group.pending_sync_members), (
        f"sync timer of {group.id} with {len(group.pending_sync_members)} members without SyncGroup"
    )
    assert not group.pending_sync_members or group.state in _IN_GENERATION


def no_stray_timers(shard: Shard, armed: ArmedTimers) -> None:
    """Invariant 9."""
    for key in armed:
        match key:
            case SessionTimer(group_id=group_id, member_id=member_id):
                group = shard.groups.get(group_id)
                assert group is not None, f"{key} for a group that does not exist"
                known = member_id in group.members or member_id in group.pending_members
                assert known, f"{key} for a member that does not exist"
            case JoinTimer(group_id=group_id) | SyncTimer(group_id=group_id):
                assert group_id in shard.groups, f"{key} for a group that does not exist"


def generation_is_stored(group: Group) -> None:
    """Invariant 10."""
    if group.state not in _IN_GENERATION:
        return
    saved = group.record
    assert [m.member_id for m in saved.members] == list(_in_order(group, saved)), (
        f"{group.id} is stored with {[m.member_id for m in saved.members]}, "
        f"its members are {list(group.members)}"
    )
    assert saved.leader == group.leader
    assert saved.protocol_type == group.protocol_type
    assert saved.awaiting_sync == (group.state is GroupState.COMPLETING_REBALANCE)


def _in_order(group: Group, saved: GroupRecord) -> Iterator[str]:
    stored = {m.member_id: m for m in saved.members}
    for member_id, member in group.members.items():
        kept = stored.get(member_id)
        assert kept is not None, f"{member_id} is a member of {group.id} but not stored"
        assert kept == member.to_record(group.protocol, group.assignments.get(member_id, b""))
        yield member_id


def protocol_is_common(group: Group) -> None:
    """Invariant 11."""
    if group.state in _IN_GENERATION:
        for member in group.members.values():
            assert group.protocol in member.protocol_names(), (
                f"{member.id} does not support {group.protocol}, which {group.id} chose"
            )


def size_is_bounded(group: Group, members_max: int) -> None:
    """Invariant 12."""
    if group.state in _IN_GENERATION:
        assert len(group.members) <= members_max, f"{group.id} has {len(group.members)} members"


def phases_leave_nothing_behind(group: Group) -> None:
    """Invariant 13."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        assert group.initial_delay is None, f"{group.id} is {group.state} but has an initial delay"
    if group.state is not GroupState.COMPLETING_REBALANCE:
        assert not group.is_sync_resumed, f"{group.id} is {group.state} but has a resumed sync"


def offsets_have_groups(shard: Shard) -> None:
    """Invariant 14."""
    with_offsets = (*shard.offsets, *shard.pending_offsets.groups())
    ownerless = [group_id for group_id in with_offsets if group_id not in shard.groups]
    assert not ownerless, f"offsets exist for groups that do not: {ownerless}"
