"""Formatting of trace entries: the lines of a scenario below its ``----``."""

from __future__ import annotations

from collections.abc import Mapping

from partage.coordinator.events import FetchOffsets
from partage.coordinator.outcome import GroupEvent, GroupEventType
from partage.coordinator.records import (
    GroupRecord,
    GroupTombstone,
    OffsetRecord,
    OffsetTombstone,
    Record,
    TransactionalOffsetRecord,
    TransactionMarker,
)
from partage.coordinator.replies import (
    CommitReply,
    CompleteTransactionReply,
    DeleteGroupReply,
    DeleteOffsetsReply,
    DescribedMember,
    DescribeGroupReply,
    FetchOffsetsReply,
    HeartbeatReply,
    JoinedMember,
    JoinReply,
    LeaveReply,
    ListGroupsReply,
    Reply,
    SyncReply,
)
from partage.coordinator.timers import ExpiryTimer, JoinTimer, SessionTimer, SyncTimer, TimerKey
from partage.model.errors import ErrorCode

from .harness import BECOMES, START_MS
from .trace import (
    AppendFailed,
    CoordinatorCrashed,
    GroupEventEmitted,
    RecordAppended,
    RecordsDurable,
    ReplyLost,
    ReplySent,
    Request,
    TimerExpired,
    TraceEntry,
)


def format_entry(entry: TraceEntry, asker: str) -> list[str]:
    """Return the lines of an entry; ``asker`` is the client that sent the request, if any."""
    match entry:
        case TimerExpired():
            return [f"{entry.at_ms - START_MS} ms: {format_timer(entry.key)} fires"]
        case GroupEventEmitted():
            return [format_group_event(entry)]
        case RecordAppended():
            return [f"log: {format_record(entry.record)}"]
        case RecordsDurable(waited=True):
            return [f"log: {format_count(entry.count, 'record')} durable"]
        case ReplySent():
            lines = format_reply(entry.asked, entry.reply)
            return [f"{asker} <- {request_name(entry.asked)} {lines[0]}", *lines[1:]]
        case ReplyLost():
            return [f"{asker} <- {request_name(entry.asked)} never: the connection is lost"]
        case AppendFailed():
            return ["log: the append failed"]
        case CoordinatorCrashed():
            return [f"the coordinator crashes{_doubted(entry)}"]
    return []


def _doubted(entry: CoordinatorCrashed) -> str:
    if not entry.kept + entry.lost:
        return ""
    kept, lost = format_count(entry.kept, "record"), format_count(entry.lost, "record")
    return f"; of what was in doubt it had stored {kept}, and lost {lost}"


def format_timers(armed: Mapping[TimerKey, int], now_ms: int) -> list[str]:
    """Return the armed timers of groups with their deadlines."""
    lines = [
        f"{format_timer(key)} in {deadline_ms - now_ms} ms"
        for key, deadline_ms in armed.items()
        if not isinstance(key, ExpiryTimer)
    ]
    return sorted(lines) or ["none"]


def format_timer(key: TimerKey) -> str:
    """Return the name of a timer."""
    match key:
        case SessionTimer():
            return f"session of {key.member_id}"
        case JoinTimer():
            return f"join timer of {key.group_id}"
        case SyncTimer():
            return f"sync timer of {key.group_id}"
        case ExpiryTimer():
            return "expiry timer"


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def request_name(asked: Request) -> str:
    """Return the name of a request in the language of the scenarios."""
    return type(asked).__name__


def format_group_event(entry: GroupEventEmitted) -> str:
    notice = entry.notice
    reason = f" ({notice.reason})" if notice.reason else ""
    if entry.before is not None:
        after = BECOMES[notice.event_type]
        return f"{notice.group_id}: {entry.before} -> {after}{_generation(notice)}{reason}"
    who = "" if notice.member_id is None else f" {notice.member_id or 'unknown member'}"
    return f"{notice.group_id}: {notice.event_type}{who}{reason}"


def _generation(notice: GroupEvent) -> str:
    if notice.event_type in (GroupEventType.GENERATION_STARTED, GroupEventType.EMPTIED):
        return f", generation {notice.generation}"
    return ""


def format_record(record: Record) -> str:
    match record:
        case GroupRecord() if not record.members:
            return f"{record.group_id} generation={record.generation}, no members"
        case GroupRecord():
            members = [
                m.member_id if record.awaiting_sync else f"{m.member_id}:{m.assignment.decode()}"
                for m in record.members
            ]
            awaiting = ", awaiting sync" if record.awaiting_sync else ""
            return (
                f"{record.group_id} generation={record.generation} protocol={record.protocol} "
                f"leader={record.leader} members={';'.join(members)}{awaiting}"
            )
        case GroupTombstone():
            return f"{record.group_id} removed"
        case OffsetRecord():
            return f"{record.group_id} {record.topic}-{record.partition}={record.offset}"
        case OffsetTombstone():
            return f"{record.group_id} {record.topic}-{record.partition} removed"
        case TransactionalOffsetRecord():
            offset = format_record(record.offset)
            return f"{offset}, pending for producer {record.producer_id}"
        case TransactionMarker():
            end = "commit" if record.is_commit else "abort"
            return f"{end} of producer {record.producer_id}"


def _error(error: ErrorCode) -> str:
    return "ok" if error is ErrorCode.NONE else error.name


def _errors(errors: tuple[ErrorCode, ...]) -> str:
    return " ".join(_error(error) for error in errors)


def format_reply(asked: Request, reply: Reply) -> list[str]:
    match reply:
        case JoinReply():
            return [_format_join(reply)]
        case SyncReply(error=ErrorCode.NONE):
            return [f"ok assignment={reply.assignment.decode()}"]
        case SyncReply(assignment_error=str(why)):
            return [f"{reply.error.name}, assignment error: {why}"]
        case SyncReply() | HeartbeatReply() | DeleteGroupReply() | CompleteTransactionReply():
            return [_error(reply.error)]
        case CommitReply():
            return [_errors(reply.errors)]
        case LeaveReply() | DeleteOffsetsReply():
            return [reply.error.name if reply.error else _errors(reply.errors)]
        case FetchOffsetsReply():
            assert isinstance(asked, FetchOffsets)
            return [_format_offsets(asked, reply)]
        case DescribeGroupReply():
            return _format_described_group(reply)
        case ListGroupsReply():
            if reply.error:
                return [reply.error.name]
            groups = [f"  {g.group_id} {g.protocol_type or '-'} {g.state}" for g in reply.groups]
            return [f"ok, {format_count(len(groups), 'group')}", *groups]


def _format_join(reply: JoinReply) -> str:
    if reply.error:
        return f"{reply.error.name} id={reply.member_id}" if reply.member_id else reply.error.name
    words = [
        f"ok id={reply.member_id}",
        f"generation={reply.generation}",
        f"protocol={reply.protocol}",
        f"leader={reply.leader}",
    ]
    if reply.members:
        words.append("members=" + ";".join(_format_joined_member(m) for m in reply.members))
    if reply.skip_assignment:
        words.append("skip_assignment")
    return " ".join(words)


def _format_joined_member(member: JoinedMember) -> str:
    return f"{member.member_id}:{member.metadata.decode()}"


def _format_offsets(asked: FetchOffsets, reply: FetchOffsetsReply) -> str:
    if reply.error:
        return reply.error.name
    if asked.partitions is None:
        found = [f"{o.topic}-{o.partition}={o.offset}" for o in reply.offsets if o is not None]
    else:
        found = [
            f"{topic}-{index}={'none' if offset is None else offset.offset}"
            for (topic, index), offset in zip(asked.partitions, reply.offsets, strict=True)
        ]
    if reply.unstable:
        found.append("unstable: " + ",".join(f"{t}-{n}" for t, n in sorted(reply.unstable)))
    return " ".join(["ok", *found])


def _format_described_group(reply: DescribeGroupReply) -> list[str]:
    words = [_error(reply.error), reply.state]
    words += [word for word in (reply.protocol_type, reply.protocol) if word]
    return [" ".join(words), *(_format_described_member(member) for member in reply.members)]


def _format_described_member(member: DescribedMember) -> str:
    words = [f"  {member.member_id}"]
    if member.instance_id is not None:
        words.append(f"instance={member.instance_id}")
    if member.metadata:
        words.append(f"metadata={member.metadata.decode()}")
    if member.assignment:
        words.append(f"assignment={member.assignment.decode()}")
    return " ".join(words)
