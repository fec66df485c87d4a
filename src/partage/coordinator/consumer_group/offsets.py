"""The fencing of OffsetCommit and OffsetFetch by member epochs."""

from __future__ import annotations

from partage.coordinator.consumer_group.catalogue import Catalogue
from partage.coordinator.consumer_group.group import ConsumerGroup
from partage.coordinator.consumer_group.member import ConsumerMember
from partage.coordinator.events import (
    Commit,
    FetchOffsets,
    OffsetToCommit,
    TransactionalCommit,
)
from partage.model.errors import ErrorCode


def commit_errors(
    group: ConsumerGroup, catalogue: Catalogue, event: Commit | TransactionalCommit
) -> tuple[ErrorCode, ...]:
    """Return for each offset NONE, or the error with which the group rejects it.

    A member commits with its epoch, which is the generation of the classic protocol. An older epoch
    is accepted for the partitions that the member has had since that epoch (KIP-1251): its newest
    epoch may be in a response under way.
    """
    if event.generation < 0 and group.is_empty:
        return (ErrorCode.NONE,) * len(event.offsets)
    is_transactional = isinstance(event, TransactionalCommit)
    is_anonymous = event.generation < 0 and not event.member_id and event.instance_id is None
    if is_transactional and is_anonymous:
        return (ErrorCode.NONE,) * len(event.offsets)
    member = group.members.get(event.member_id)
    error = ErrorCode.NONE
    if member is None:
        error = ErrorCode.UNKNOWN_MEMBER_ID
    elif isinstance(event, Commit) and not (event.knows_group_not_found or member.is_classic):
        error = ErrorCode.UNSUPPORTED_VERSION
    elif event.generation > member.epoch:
        error = _stale_error(member)
    if error or member is None or event.generation == member.epoch:
        return (error,) * len(event.offsets)
    return tuple(
        _older_epoch_error(member, catalogue, event.generation, offset) for offset in event.offsets
    )


def _older_epoch_error(
    member: ConsumerMember, catalogue: Catalogue, epoch: int, offset: OffsetToCommit
) -> ErrorCode:
    topic = catalogue.topic(offset.topic)
    assignment = member.assignment
    for held in (assignment.assigned, assignment.pending_revocation):
        since = None
        if topic is not None:
            since = held.get(topic.topic_id, {}).get(offset.partition)
        if since is not None and since <= epoch:
            return ErrorCode.NONE
    return _stale_error(member)


def _stale_error(member: ConsumerMember) -> ErrorCode:
    """Return the error of another epoch, in the member's protocol."""
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH


def fetch_error(group: ConsumerGroup, event: FetchOffsets) -> ErrorCode:
    """Return NONE, or the error with which the group rejects an OffsetFetch."""
    if event.member_id is None and event.member_epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(event.member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.epoch != event.member_epoch:
        return _stale_error(member)
    return ErrorCode.NONE
