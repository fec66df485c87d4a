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

For consumer groups:

15. Each partition has at most one holder: the member to which it is assigned, or that must still
    give it up. The counters of subscriptions, assignors and instance ids are right.
16. The target assignment is not ahead of the group, and no member is ahead of the target.
17. A member has a session timer exactly while none of its requests is parked. A rebalance timer is
    armed exactly for the members that must give up partitions, and for those with the classic
    protocol that must send JoinGroup or SyncGroup.
18. A group without members has no target assignment to compute.
19. All parked requests belong to members.
20. The counters of the members with the classic protocol and of their assignors are right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from partage.coordinator.consumer_group.group import ConsumerGroup, subscription_of
from partage.coordinator.consumer_group.member import STATIC_LEAVE_EPOCH
from partage.coordinator.group import Group
from partage.coordinator.records import GroupRecord, OffsetRecord
from partage.coordinator.shard import Shard
from partage.coordinator.states import GroupState
from partage.coordinator.timers import JoinTimer, RebalanceTimer, SessionTimer, SyncTimer, TimerKey

ArmedTimers = Mapping[TimerKey, int]
_IN_GENERATION = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)


def check(shard: Shard, armed: ArmedTimers) -> None:
    """Raise `AssertionError` with details if an invariant does not hold."""
    for consumer_group in shard.groups.values():
        if isinstance(consumer_group, ConsumerGroup):
            partitions_have_one_holder(consumer_group)
            epochs_are_ordered(consumer_group)
            consumer_sessions_are_timed(consumer_group, armed)
            computation_has_members(consumer_group)
            classic_members_are_counted(consumer_group)
    for group in shard.classic_groups().values():
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
    dict[str, GroupRecord | frozenset[str]],
    dict[tuple[str, str, int], OffsetRecord],
    dict[tuple[int, str, str, int], tuple[OffsetRecord, bool]],
]:
    """Return the groups, the offsets, and the pending offsets that a replay of the log must
    restore. A pending offset comes with its producer id, and with True if it is superseded.
    """
    groups: dict[str, GroupRecord | frozenset[str]] = {
        group.id: group.record
        for group in shard.classic_groups().values()
        if group.record.generation
    }
    for group in shard.groups.values():
        if isinstance(group, ConsumerGroup):
            groups[group.id] = frozenset(map(repr, group.records()))
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
                is_pending = isinstance(group, Group) and member_id in group.pending_members
                known = member_id in group.members_by_id or is_pending
                assert known, f"{key} for a member that does not exist"
            case RebalanceTimer(group_id=group_id, member_id=member_id):
                group = shard.groups.get(group_id)
                known = isinstance(group, ConsumerGroup) and member_id in group.members
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


def partitions_have_one_holder(group: ConsumerGroup) -> None:
    """Invariant 15."""
    holders: dict[bytes, dict[int, str]] = {}
    subscriptions: dict[object, int] = {}
    assignors: dict[str, int] = {}
    static: dict[str, str] = {}
    for member in group.members.values():
        for part in (member.assignment.assigned, member.assignment.pending_revocation):
            for topic_id, epochs in part.items():
                of_topic = holders.setdefault(topic_id, {})
                for partition in epochs:
                    assert partition not in of_topic, (
                        f"{group.id}: {of_topic[partition]} and {member.id} have {partition}"
                    )
                    of_topic[partition] = member.id
        record = member.subscription
        subscription = subscription_of(record)
        subscriptions[subscription] = subscriptions.get(subscription, 0) + 1
        if record.server_assignor is not None:
            assignors[record.server_assignor] = assignors.get(record.server_assignor, 0) + 1
        if record.instance_id is not None:
            static[record.instance_id] = member.id
    assert holders == group.holders, f"{group.id}: holders are {holders}, not {group.holders}"
    regexes = Counter(m.subscription.subscribed_regex for m in group.members.values())
    del regexes[None]
    assert group.subscribed_regexes == regexes, f"{group.id}: {group.subscribed_regexes}"
    assert subscriptions == group.subscriptions, f"{group.id}: {group.subscriptions}"
    assert assignors == group.assignors, f"{group.id}: {group.assignors}"
    assert static == group.static_members, f"{group.id}: {group.static_members}"
    assert group.regexes.keys() <= regexes.keys(), f"{group.id}: {group.regexes}"


def epochs_are_ordered(group: ConsumerGroup) -> None:
    """Invariant 16."""
    assert group.assignment_epoch <= group.epoch, (
        f"{group.id}: target {group.assignment_epoch} is ahead of {group.epoch}"
    )
    for member in group.members.values():
        assert STATIC_LEAVE_EPOCH <= member.epoch <= group.assignment_epoch, (
            f"{member.id} is in epoch {member.epoch}, {group.id} in {group.assignment_epoch}"
        )


def consumer_sessions_are_timed(group: ConsumerGroup, armed: ArmedTimers) -> None:
    """Invariant 17."""
    for member in group.members.values():
        is_parked = group.is_parked(member.id)
        assert (member.session_timer in armed) != is_parked, (
            f"session of {member.id}, which is {'' if is_parked else 'not '}parked"
        )
        is_timed = member.must_revoke or member.awaits_request
        assert not member.awaits_request or member.is_classic, f"{member.id} is not classic"
        assert (member.rebalance_timer in armed) == is_timed, (
            f"rebalance timer of {member.id}, which is {member.assignment.state.name}"
        )


def computation_has_members(group: ConsumerGroup) -> None:
    """Invariants 18 and 19."""
    if not group.members:
        assert group.assignment_epoch == group.epoch, f"empty {group.id} awaits a target"
    if group.computation is not None:
        parked = {each.member_id for each in group.computation.parked}
        assert parked <= group.members.keys(), f"{group.id}: {parked} wait without being members"


def classic_members_are_counted(group: ConsumerGroup) -> None:
    """Invariant 20."""
    classic = [m.subscription.classic for m in group.members.values()]
    listed = [{each.name for each in record.protocols} for record in classic if record is not None]
    assert group.classic_count == len(listed), f"{group.id}: {group.classic_count} classic members"
    counts = Counter(name for names in listed for name in names)
    assert group.classic_protocols == counts, f"{group.id}: {group.classic_protocols}"
