"""DescribeGroups, ListGroups, DeleteGroups, and the expiry of offsets and empty groups."""

from __future__ import annotations

from collections.abc import Iterable

from partage.coordinator.answers import ANSWERS, ERRORS, Answer, Row
from partage.coordinator.commit import GroupOffsets
from partage.coordinator.events import DeleteGroup, Describe, ListGroups
from partage.coordinator.group import Group
from partage.coordinator.member import Member
from partage.coordinator.outcome import Happening
from partage.coordinator.records import GroupRemoved, OffsetCommitted, OffsetRemoved
from partage.coordinator.replies import (
    DeleteReply,
    DescribedMember,
    DescribeReply,
    ListedGroup,
    ListReply,
)
from partage.coordinator.states import GroupState
from partage.coordinator.turn import Turn
from partage.model.errors import ErrorCode


def describe(turn: Turn, group: Group | None, event: Describe) -> None:
    """Handle a DescribeGroup; ``group`` is None if the group does not exist."""
    answer = ANSWERS[Row.DESCRIBE][None if group is None else group.state]
    if group is None:
        error = ErrorCode.GROUP_ID_NOT_FOUND if event.knows_group_not_found else ErrorCode.NONE
        turn.reply(event.reply_to, DescribeReply(error=error, group_id=event.group_id))
        return
    protocol = group.protocol if answer is Answer.FULL else None
    turn.reply(
        event.reply_to,
        DescribeReply(
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


def list_groups(turn: Turn, groups: Iterable[Group], event: ListGroups) -> None:
    """Handle a ListGroups for the groups of one shard."""
    listed: tuple[ListedGroup, ...] = ()
    if not event.types or "classic" in event.types:
        listed = tuple(
            ListedGroup(
                group_id=group.id,
                protocol_type=group.protocol_type or "",
                state=group.state,
            )
            for group in groups
            if not event.states or group.state.lower() in event.states
        )
    turn.reply(event.reply_to, ListReply(groups=listed))


def delete(turn: Turn, group: Group | None, committed: GroupOffsets, event: DeleteGroup) -> None:
    """Handle a DeleteGroup: remove the group and its offsets if it has no members."""
    answer = ANSWERS[Row.DELETE][None if group is None else group.state]
    if group is None or answer in ERRORS:
        turn.reply(event.reply_to, DeleteReply(error=ERRORS[answer]))
        return
    for topic, partition in list(committed):
        turn.write(OffsetRemoved(group_id=group.id, topic=topic, partition=partition))
    _remove(turn, group, "deleted")
    turn.reply(event.reply_to, DeleteReply(error=ErrorCode.NONE))


def _remove(turn: Turn, group: Group, reason: str) -> None:
    for member_id in group.pending:
        turn.cancel(Member.timer_for(group.id, member_id))
    group.become(GroupState.DEAD)
    turn.notice(group, Happening.REMOVED, reason=reason)
    turn.write(GroupRemoved(group_id=group.id))


def expire(
    turn: Turn, group: Group, committed: GroupOffsets, in_use: frozenset[str] | None
) -> None:
    """Remove expired offsets, then the group if it is Empty and has neither offsets nor pending
    members.

    Retention follows KIP-211. It counts from:

    - the time when the group became empty, or the commit if later, for a group without members;
    - the commit, for topics to which a stable consumer group no longer subscribes;
    - the commit, for a group that never had members.

    Offsets of any other group do not expire. An offset with its own expiry time (old clients) uses
    that time instead.

    Args:
        context: Context of the current event.
        group: The group to check.
        committed: Its committed offsets.
        in_use: The topics that its members subscribe to; None if they are unknown.
    """
    gone = [c for c in committed.values() if _is_over(turn, group, in_use, c)]
    for offset in gone:
        turn.write(OffsetRemoved(group_id=group.id, topic=offset.topic, partition=offset.partition))
    if gone:
        turn.notice(group, Happening.OFFSETS_EXPIRED, reason=f"{len(gone)} of them")
    if group.state is GroupState.EMPTY and not group.pending and not committed:
        _remove(turn, group, "empty, and no offsets are left")


def _is_over(
    turn: Turn, group: Group, in_use: frozenset[str] | None, offset: OffsetCommitted
) -> bool:
    if group.protocol_type is None:
        since_ms = offset.commit_ms
    elif group.state is GroupState.EMPTY:
        since_ms = max(group.saved.since_ms, offset.commit_ms)
    elif group.state is GroupState.STABLE and in_use is not None and offset.topic not in in_use:
        since_ms = offset.commit_ms
    else:
        return False
    if offset.expire_ms is not None:
        return turn.at_ms >= offset.expire_ms
    return turn.at_ms - since_ms >= turn.settings.offsets_retention_ms
