"""DescribeGroups, ListGroups, DeleteGroups, and the expiry of offsets and empty groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from partage.coordinator.commit import GroupOffsets
from partage.coordinator.event_context import EventContext
from partage.coordinator.events import DeleteGroup, DescribeGroup, ListGroups
from partage.coordinator.group import Group
from partage.coordinator.group_base import GroupBase
from partage.coordinator.member import Member
from partage.coordinator.outcome import GroupEventType
from partage.coordinator.records import OffsetRecord, OffsetTombstone
from partage.coordinator.replies import (
    DeleteGroupReply,
    DescribedMember,
    DescribeGroupReply,
    GroupOverview,
    ListGroupsReply,
)
from partage.coordinator.response_table import RESPONSE_ERRORS, RESPONSES, RequestCase, Response
from partage.coordinator.states import GroupState
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition


def describe_group(context: EventContext, group: GroupBase | None, event: DescribeGroup) -> None:
    """Handle a DescribeGroup; ``group`` is None if the group does not exist."""
    if group is not None and not isinstance(group, Group):
        error = ErrorCode.GROUP_ID_NOT_FOUND if event.knows_group_not_found else ErrorCode.NONE
        message = f"Group {group.id} is not a classic group."
        context.reply(
            event.reply_to,
            DescribeGroupReply(error=error, error_message=message, group_id=group.id),
        )
        return
    answer = RESPONSES[RequestCase.DESCRIBE][None if group is None else group.state]
    if group is None:
        error = ErrorCode.GROUP_ID_NOT_FOUND if event.knows_group_not_found else ErrorCode.NONE
        context.reply(event.reply_to, DescribeGroupReply(error=error, group_id=event.group_id))
        return
    protocol = group.protocol if answer is Response.FULL else None
    context.reply(
        event.reply_to,
        DescribeGroupReply(
            group_id=group.id,
            state=group.state,
            protocol_type=group.protocol_type or "",
            protocol=protocol or "",
            members=tuple(
                DescribedMember(
                    member_id=member.id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    metadata=member.metadata(protocol),
                    assignment=group.assignments.get(member.id, b""),
                )
                for member in group.members.values()
            ),
        ),
    )


def list_groups(context: EventContext, groups: Iterable[GroupBase], event: ListGroups) -> None:
    """Handle a ListGroups for the groups of one shard."""
    listed = tuple(
        GroupOverview(
            group_id=group.id,
            protocol_type=group.protocol_type_name,
            state=group.state_name,
            type=group.type,
        )
        for group in groups
        if (not event.types or group.type in event.types)
        and (not event.states or group.state_name.lower() in event.states)
    )
    context.reply(event.reply_to, ListGroupsReply(groups=listed))


def delete_group(
    context: EventContext,
    group: GroupBase | None,
    committed: Collection[tuple[str, int]],
    event: DeleteGroup,
) -> None:
    """Handle a DeleteGroup: remove the group and its offsets if it has no members.

    ``committed`` are the partitions with committed or pending offsets.
    """
    answer = RESPONSES[RequestCase.DELETE][None if group is None else group.classic_state]
    if group is None or answer in RESPONSE_ERRORS:
        context.reply(event.reply_to, DeleteGroupReply(error=RESPONSE_ERRORS[answer]))
        return
    for topic, partition in list(committed):
        context.write(OffsetTombstone(group_id=group.id, topic=topic, partition=partition))
    remove_group(context, group, "deleted")
    context.reply(event.reply_to, DeleteGroupReply(error=ErrorCode.NONE))


def remove_group(
    context: EventContext,
    group: GroupBase,
    reason: str,
    *,
    event_type: GroupEventType = GroupEventType.REMOVED,
) -> None:
    """Remove a group without members; ``event_type`` is another one if a group replaces it."""
    if isinstance(group, Group):
        for member_id in group.pending_members:
            context.cancel_timer(Member.session_timer_key(group.id, member_id))
        group.transition_to(GroupState.DEAD)
    context.emit(group, event_type, reason=reason)
    for tombstone in group.tombstones():
        context.write(tombstone)


def expire_offsets(
    context: EventContext,
    group: GroupBase,
    committed: GroupOffsets,
    pending: Collection[TopicPartition],
    in_use: frozenset[str] | None,
) -> None:
    """Remove expired offsets, then the group if it is Empty and has neither offsets nor pending
    members.

    Retention follows KIP-211. It counts from:

    - the time when the group became empty, or the commit if later, for a group without members;
    - the commit, for topics to which a stable consumer group no longer subscribes;
    - the commit, for a group that never had members;
    - the commit, for topics to which no member of a group with the consumer protocol subscribes.

    Offsets of any other group do not expire. An offset with its own expiry time (old clients) uses
    that time instead.

    Args:
        context: Context of the current event.
        group: The group to check.
        committed: Its committed offsets.
        pending: The partitions with pending offsets of transactions, which do not expire.
        in_use: The topics that its members subscribe to; None if they are unknown.
    """
    gone = [
        offset
        for partition, offset in committed.items()
        if partition not in pending and _is_expired(context, group, in_use, offset)
    ]
    for offset in gone:
        context.write(
            OffsetTombstone(group_id=group.id, topic=offset.topic, partition=offset.partition)
        )
    if gone:
        context.emit(group, GroupEventType.OFFSETS_EXPIRED, reason=f"{len(gone)} offsets")
    is_empty = group.classic_state is GroupState.EMPTY
    if isinstance(group, Group) and group.pending_members:
        is_empty = False
    if is_empty and not committed and not pending:
        remove_group(context, group, "empty and without offsets")


def _is_expired(
    context: EventContext, group: GroupBase, in_use: frozenset[str] | None, offset: OffsetRecord
) -> bool:
    since_ms = group.retention_start_ms(offset, in_use)
    if since_ms is None:
        return False
    if offset.expire_ms is not None:
        return context.at_ms >= offset.expire_ms
    return context.at_ms - since_ms >= context.settings.offsets_retention_ms
