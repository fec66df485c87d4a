"""Liveness of the group with the consumer protocol, or with both, in a healed world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from partage.coordinator.consumer_group.group import ConsumerGroup
from partage.coordinator.consumer_group.states import ConsumerGroupState
from partage.coordinator.group import Group
from partage.coordinator.group_base import GroupBase
from partage.coordinator.states import GroupState
from partage.lab.checkers.group_migrations import DOWNGRADING, UPGRADING
from partage.lab.clients.classic_member import ClassicMember
from partage.lab.clients.group_member import HeartbeatMember, SimSubscription
from partage.lab.names import CONSUMER_GROUP
from partage.lab.world import World
from partage.member.states import MemberState
from partage.model.errors import ErrorCode
from partage.model.settings import MigrationPolicy

_REGEX_MATCHES: Final = {
    "k.*": ("ka", "kb", "kd"),
    "lc|kd": ("lc", "kd"),
    "[kl].*": ("ka", "kb", "lc", "kd"),
    "k[ab]": ("ka", "kb"),
}


class GroupEpochs(NamedTuple):
    """The epochs and the target of a group, which must survive a failover."""

    group_epoch: int
    assignment_epoch: int
    member_epochs: dict[str, int]
    targets: dict[str, dict[bytes, tuple[int, ...]]]


def consumer_group_epochs(world: World) -> GroupEpochs | None:
    """Return the epochs of the group; None without members or while it is not loaded."""
    group = _group(world)
    if group is None or not group.members:
        return None
    return GroupEpochs(
        group.epoch,
        group.assignment_epoch,
        {member.id: member.epoch for member in group.members.values()},
        {member.id: dict(member.target) for member in group.members.values()},
    )


def consumer_group_problem(world: World) -> str | None:
    """Return why the group has not converged; None if it has."""
    if not world.options.consumer_members:
        return None
    group = _stored_group(world)
    known = set(group.members) if isinstance(group, ConsumerGroup | Group) else set()
    for member in world.live_group_members:
        if member.failure is not None and not _may_be_refused(world, member, group):
            return f"{member.name} got {member.failure}"
    joined = [each for each in world.live_consumer_members if each.failure is None]
    classic = [each for each in world.live_classic_members if each.failure is None]
    live = {each.member_id for each in joined} | {_member_id(each) for each in classic}
    if known != live:
        return f"the group has {sorted(known)}, the live members are {sorted(live)}"
    if group is None or not live:
        return None
    if isinstance(group, ConsumerGroup):
        problem = _group_problem(world, group, joined, classic)
    else:
        assert isinstance(group, Group)
        problem = _classic_group_problem(group, classic)
    return problem or _assignment_problem(world, joined, classic)


def _group_problem(
    world: World,
    group: ConsumerGroup,
    members: Sequence[HeartbeatMember],
    classic: Sequence[ClassicMember],
) -> str | None:
    if group.state is not ConsumerGroupState.STABLE:
        return f"group {CONSUMER_GROUP} is {group.state}"
    policy = world.settings.consumer.migration_policy
    if not members and policy in DOWNGRADING and len(classic) <= world.options.members_max:
        return f"group {CONSUMER_GROUP} has only members with the classic protocol"
    for member in members:
        if not member.is_converged or member.epoch != group.epoch:
            return (
                f"{member.name} is in epoch {member.epoch} of {group.epoch} with "
                f"{len(member.owned)} of {len(member.assigned)} partitions"
            )
    for process in classic:
        stored = group.members[_member_id(process)]
        problem = _classic_member_problem(process, stored.epoch)
        if problem is not None or stored.epoch != group.epoch:
            return problem or f"{process.name} is in epoch {stored.epoch} of {group.epoch}"
    images = world.consumer_topics.images
    for regex in group.subscribed_regexes:
        matches = tuple(sorted(images.keys() & set(_REGEX_MATCHES[regex])))
        known_topics = group.regexes.get(regex)
        if known_topics is None or known_topics.topics != matches:
            return f"the topics of {regex} are {known_topics}, not {matches}"
    return None


def _classic_group_problem(group: Group, members: Sequence[ClassicMember]) -> str | None:
    if group.state is not GroupState.STABLE:
        return f"the classic group {CONSUMER_GROUP} is {group.state}"
    problems = (_classic_member_problem(process, group.generation) for process in members)
    return next((problem for problem in problems if problem is not None), None)


def _classic_member_problem(process: ClassicMember, generation: int) -> str | None:
    membership = process.core.membership
    if membership.state is not MemberState.STABLE or membership.generation != generation:
        return (
            f"{process.name} is {membership.state} in generation {membership.generation} "
            f"of {generation}"
        )
    if process.core.deliverable != process.core.owned:
        return f"{process.name} does not deliver from all partitions that it owns"
    return None


def _member_id(process: ClassicMember) -> str:
    return process.core.membership.member_id


def _stored_group(world: World) -> GroupBase | None:
    coordinator = world.coordinator(CONSUMER_GROUP)
    shard = None if coordinator is None else coordinator.core_of(CONSUMER_GROUP)
    return None if shard is None else shard.groups.get(CONSUMER_GROUP)


def _group(world: World) -> ConsumerGroup | None:
    group = _stored_group(world)
    return group if isinstance(group, ConsumerGroup) else None


def _may_be_refused(
    world: World, member: HeartbeatMember | ClassicMember, group: GroupBase | None
) -> bool:
    """True if the group must refuse a member, or a live process has its instance id."""
    is_classic = isinstance(group, Group)
    size = len(group.members) if isinstance(group, ConsumerGroup | Group) else 0
    policy = world.settings.consumer.migration_policy
    members_max = world.options.consumer_members_max
    match member.failure:
        case ErrorCode.UNRELEASED_INSTANCE_ID.name | ErrorCode.FENCED_INSTANCE_ID.name:
            joined = [each for each in world.live_group_members if each.failure is None]
            return any(each.instance_id == member.instance_id for each in joined)
        case ErrorCode.GROUP_MAX_SIZE_REACHED.name:
            if is_classic and isinstance(member, ClassicMember):
                members_max = world.options.members_max
            return size >= members_max
        case ErrorCode.GROUP_ID_NOT_FOUND.name:
            return is_classic and size > 0 and (policy not in UPGRADING or size > members_max)
        case ErrorCode.INCONSISTENT_GROUP_PROTOCOL.name:
            return not is_classic and size > 0 and policy is MigrationPolicy.DISABLED
    return False


def _assignment_problem(
    world: World, members: Sequence[HeartbeatMember], classic: Sequence[ClassicMember]
) -> str | None:
    images = world.consumer_topics.images
    wanted: set[tuple[bytes, int]] = set()
    owned: list[tuple[bytes, int]] = []
    owners = [(each.name, selected_names(each.selection), each.owned) for each in members]
    owners += [(each.name, set(each.topics), _owned_ids(world, each)) for each in classic]
    for name, selected, of_member in owners:
        topics = [images[each] for each in selected if each in images]
        allowed = {
            (each.topic_id, index) for each in topics for index in range(each.partition_count)
        }
        if foreign := of_member - allowed:
            return f"{name} owns {sorted(foreign)}, to which it does not subscribe"
        wanted |= allowed
        owned += of_member
    if sorted(owned) != sorted(wanted):
        return f"{len(owned)} partitions are owned, {len(wanted)} are subscribed"
    return None


def _owned_ids(world: World, process: ClassicMember) -> frozenset[tuple[bytes, int]]:
    images = world.consumer_topics.images
    return frozenset(
        (images[topic].topic_id if topic in images else b"", index)
        for topic, index in process.core.owned
    )


def selected_names(selection: SimSubscription) -> set[str]:
    """Return the names that topics of a subscription can have."""
    matches = () if selection.regex is None else _REGEX_MATCHES[selection.regex]
    return {*selection.names, *matches}
