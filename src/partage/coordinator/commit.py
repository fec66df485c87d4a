"""OffsetCommit, TxnOffsetCommit and OffsetDelete, fenced by the group's generation."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from partage.coordinator.event_context import EventContext
from partage.coordinator.events import (
    Commit,
    DeleteOffsets,
    OffsetToCommit,
    TransactionalCommit,
)
from partage.coordinator.group import Group
from partage.coordinator.group_base import GroupBase
from partage.coordinator.member import Member
from partage.coordinator.outcome import GroupEventType
from partage.coordinator.records import (
    OffsetRecord,
    OffsetTombstone,
    TransactionalOffsetRecord,
)
from partage.coordinator.replies import CommitReply, DeleteOffsetsReply
from partage.coordinator.response_table import RESPONSE_ERRORS, RESPONSES, RequestCase, Response
from partage.coordinator.states import GroupState
from partage.model.errors import ErrorCode

#: The committed offsets of a group by topic and partition. The keys are plain tuples: a shard can
#: load millions of them, and creating a `TopicPartition` takes as long as storing the offset.
GroupOffsets = dict[tuple[str, int], OffsetRecord]


def commit(context: EventContext, group: Group | None, event: Commit) -> None:
    """Handle a Commit; ``group`` is None if the group does not exist."""
    member: Member | None = None
    state = None if group is None else group.state
    row = RequestCase.COMMIT_SIMPLE if _is_simple(group, event) else RequestCase.COMMIT_MEMBER
    if row is RequestCase.COMMIT_MEMBER and group is not None:
        found = _identify(group, event)
        if not isinstance(found, Member):
            _reject(context, group, event, found)
            return
        member = found
    match RESPONSES[row][state]:
        case Response.COMMIT:
            _store(context, event)
        case Response.COMMIT_ALIVE:
            assert member is not None
            _store(context, event)
            context.restart_session(member)
        case Response.REFUSED_COMMIT if event.knows_group_not_found:
            _reject(context, group, event, ErrorCode.GROUP_ID_NOT_FOUND)
        case Response.REFUSED_COMMIT:
            _reject(context, group, event, ErrorCode.ILLEGAL_GENERATION)
        case answer:
            _reject(context, group, event, RESPONSE_ERRORS[answer])


def commit_in_transaction(
    context: EventContext, group: Group | None, event: TransactionalCommit
) -> None:
    """Handle a TransactionalCommit; ``group`` is None if the group does not exist.

    Unlike an OffsetCommit it is accepted while the group awaits its sync, it does not keep the
    member alive, and without member and generation it is accepted from any producer, as in Kafka.
    """
    if not event.group_id:
        _reject(context, None, event, ErrorCode.INVALID_GROUP_ID)
        return
    is_fenced = event.generation >= 0 or event.member_id or event.instance_id is not None
    row = RequestCase.TXN_COMMIT_SIMPLE
    if is_fenced and not _is_simple(group, event):
        row = RequestCase.TXN_COMMIT_MEMBER
        if group is not None:
            found = _identify(group, event)
            if isinstance(found, ErrorCode):
                _reject(context, group, event, found)
                return
    answer = RESPONSES[row][None if group is None else group.state]
    if answer in RESPONSE_ERRORS:
        _reject(context, group, event, RESPONSE_ERRORS[answer])
        return
    _store(context, event)


def commit_fenced(
    context: EventContext,
    group: GroupBase,
    event: Commit | TransactionalCommit,
    fencing: Sequence[ErrorCode],
) -> None:
    """Store the offsets that the group does not reject.

    Args:
        context: Context of the current event.
        group: A consumer group.
        event: The request.
        fencing: For each offset NONE, or the error with which the group rejects it.
    """
    _store(context, event, fencing)
    errors = {error: None for error in fencing if error}
    for error in errors:
        rejected = zip(event.offsets, fencing, strict=True)
        topics = dict.fromkeys(wanted.topic for wanted, each in rejected if each is error)
        context.emit(
            group,
            GroupEventType.COMMIT_REFUSED,
            event.member_id,
            error.name,
            topics=tuple(topics),
        )


def _is_simple(group: Group | None, event: Commit | TransactionalCommit) -> bool:
    """True if the commit does not come from a member of the group.

    A group without members accepts a commit with any member id, as long as it names no generation.
    """
    if event.generation >= 0:
        return False
    is_empty = group is None or group.state is GroupState.EMPTY
    return is_empty or (not event.member_id and event.instance_id is None)


def _identify(group: Group, event: Commit | TransactionalCommit) -> Member | ErrorCode:
    member = group.validate_member(event.member_id, event.instance_id)
    if not isinstance(member, Member):
        return member
    # A member whose Join was never answered is in no generation, whichever one it names. Kafka
    # accepts such a commit.
    if member.is_new or event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return member


def _reject(
    context: EventContext,
    group: Group | None,
    event: Commit | TransactionalCommit,
    error: ErrorCode,
) -> None:
    context.reply(event.reply_to, CommitReply(errors=(error,) * len(event.offsets)))
    if group is not None:
        topics = tuple(dict.fromkeys(wanted.topic for wanted in event.offsets))
        context.emit(
            group, GroupEventType.COMMIT_REFUSED, event.member_id, error.name, topics=topics
        )


def _store(
    context: EventContext,
    event: Commit | TransactionalCommit,
    fencing: Sequence[ErrorCode] | None = None,
) -> None:
    errors = []
    expire_ms = None
    if isinstance(event, Commit) and event.retention_ms is not None:
        expire_ms = context.at_ms + event.retention_ms
    metadata_bytes_max = context.settings.offset_metadata_bytes_max
    for index, wanted in enumerate(event.offsets):
        error = ErrorCode.NONE if fencing is None else fencing[index]
        if not error and len(wanted.metadata.encode()) > metadata_bytes_max:
            error = ErrorCode.OFFSET_METADATA_TOO_LARGE
        errors.append(error)
        if error:
            continue
        record = _to_record(context, event.group_id, wanted, expire_ms)
        if isinstance(event, Commit):
            context.write(record)
        else:
            context.write(
                TransactionalOffsetRecord(
                    producer_id=event.producer_id,
                    producer_epoch=event.producer_epoch,
                    offset=record,
                )
            )
    context.reply(event.reply_to, CommitReply(errors=tuple(errors)))


def _to_record(
    context: EventContext, group_id: str, wanted: OffsetToCommit, expire_ms: int | None
) -> OffsetRecord:
    return OffsetRecord(
        group_id=group_id,
        topic=wanted.topic,
        partition=wanted.partition,
        offset=wanted.offset,
        leader_epoch=wanted.leader_epoch,
        metadata=wanted.metadata,
        commit_ms=context.at_ms,
        expire_ms=expire_ms,
    )


def delete_offsets(
    context: EventContext,
    group: GroupBase | None,
    committed: Collection[tuple[str, int]],
    in_use: frozenset[str] | None,
    event: DeleteOffsets,
) -> None:
    """Handle an OffsetDelete.

    Args:
        context: Context of the current event.
        group: The group; None if it does not exist.
        committed: The partitions with committed or pending offsets.
        in_use: The topics that a consumer group subscribes to. None if they are unknown; then every
            topic counts as subscribed.
        event: The request.
    """
    if not event.group_id:
        context.reply(event.reply_to, DeleteOffsetsReply(error=ErrorCode.INVALID_GROUP_ID))
        return
    answer = RESPONSES[RequestCase.DELETE_OFFSETS][None if group is None else group.classic_state]
    if answer is Response.OFFSETS_UNUSED and (
        group is None or group.protocol_type_name != "consumer"
    ):
        answer = Response.NOT_EMPTY
    if answer in RESPONSE_ERRORS:
        context.reply(event.reply_to, DeleteOffsetsReply(error=RESPONSE_ERRORS[answer]))
        return
    errors = []
    for topic, partition in event.partitions:
        if answer is Response.OFFSETS_UNUSED and (in_use is None or topic in in_use):
            errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
            continue
        errors.append(ErrorCode.NONE)
        if (topic, partition) in committed:
            context.write(
                OffsetTombstone(group_id=event.group_id, topic=topic, partition=partition)
            )
    context.reply(event.reply_to, DeleteOffsetsReply(errors=tuple(errors)))
