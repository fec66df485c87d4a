"""What happened, in words: the lines of a scenario under its ``----``."""

from __future__ import annotations

from collections.abc import Mapping

from partage.coordinator.events import FetchOffsets
from partage.coordinator.outcome import Happening, Notice
from partage.coordinator.records import (
    GroupRemoved,
    GroupSaved,
    OffsetCommitted,
    OffsetRemoved,
    Record,
)
from partage.coordinator.replies import (
    CommitReply,
    DeleteOffsetsReply,
    DeleteReply,
    DescribedMember,
    DescribeReply,
    HeartbeatReply,
    JoinedMember,
    JoinReply,
    LeaveReply,
    ListReply,
    OffsetsReply,
    Reply,
    SyncReply,
)
from partage.coordinator.timers import ExpiryTimer, JoinTimer, SessionTimer, SyncTimer, TimerKey
from partage.model.errors import ErrorCode

from .harness import BECOMES, START_MS
from .trace import Answered, Asked, Crashed, Durable, Entry, Failed, Fired, Lost, Noted, Written


def told(entry: Entry, asker: str) -> list[str]:
    """The lines that tell of an entry; ``asker`` is who asked, where somebody did."""
    match entry:
        case Fired():
            return [f"{entry.at_ms - START_MS} ms: {timer(entry.key)} fires"]
        case Noted():
            return [told_notice(entry)]
        case Written():
            return [f"log: {told_record(entry.record)}"]
        case Durable(waited=True):
            return [f"log: {counted(entry.count, 'record')} durable"]
        case Answered():
            lines = told_reply(entry.asked, entry.reply)
            return [f"{asker} <- {name_of(entry.asked)} {lines[0]}", *lines[1:]]
        case Lost():
            return [f"{asker} <- {name_of(entry.asked)} never: the connection is lost"]
        case Failed():
            return ["log: the append failed"]
        case Crashed():
            return [f"the coordinator crashes{_doubted(entry)}"]
    return []


def _doubted(entry: Crashed) -> str:
    if not entry.kept + entry.lost:
        return ""
    kept, lost = counted(entry.kept, "record"), counted(entry.lost, "record")
    return f"; of what was in doubt it had stored {kept}, and lost {lost}"


def told_timers(armed: Mapping[TimerKey, int], now_ms: int) -> list[str]:
    """The timers of groups that are armed, and when they fire."""
    lines = [
        f"{timer(key)} in {deadline_ms - now_ms} ms"
        for key, deadline_ms in armed.items()
        if not isinstance(key, ExpiryTimer)
    ]
    return sorted(lines) or ["none"]


def timer(key: TimerKey) -> str:
    """A timer's name."""
    match key:
        case SessionTimer():
            return f"session of {key.member_id}"
        case JoinTimer():
            return f"join timer of {key.group_id}"
        case SyncTimer():
            return f"sync timer of {key.group_id}"
        case ExpiryTimer():
            return "expiry timer"


def counted(count: int, noun: str) -> str:
    """A number of things."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def name_of(asked: Asked) -> str:
    """A request's name, as it is in the language of the stories."""
    return type(asked).__name__


def told_notice(entry: Noted) -> str:
    notice = entry.notice
    reason = f" ({notice.reason})" if notice.reason else ""
    if entry.before is not None:
        after = BECOMES[notice.happening]
        return f"{notice.group_id}: {entry.before} -> {after}{_generation(notice)}{reason}"
    who = "" if notice.member_id is None else f" {notice.member_id or 'somebody'}"
    return f"{notice.group_id}: {notice.happening}{who}{reason}"


def _generation(notice: Notice) -> str:
    if notice.happening in (Happening.GENERATION_STARTED, Happening.EMPTIED):
        return f", generation {notice.generation}"
    return ""


def told_record(record: Record) -> str:
    match record:
        case GroupSaved() if not record.members:
            return f"{record.group_id} generation={record.generation}, no members"
        case GroupSaved():
            members = [
                m.member_id if record.awaiting_sync else f"{m.member_id}:{m.assignment.decode()}"
                for m in record.members
            ]
            awaiting = ", awaiting sync" if record.awaiting_sync else ""
            return (
                f"{record.group_id} generation={record.generation} protocol={record.protocol} "
                f"leader={record.leader} members={';'.join(members)}{awaiting}"
            )
        case GroupRemoved():
            return f"{record.group_id} removed"
        case OffsetCommitted():
            return f"{record.group_id} {record.topic}-{record.partition}={record.offset}"
        case OffsetRemoved():
            return f"{record.group_id} {record.topic}-{record.partition} removed"


def _error(error: ErrorCode) -> str:
    return "ok" if error is ErrorCode.NONE else error.name


def _errors(errors: tuple[ErrorCode, ...]) -> str:
    return " ".join(_error(error) for error in errors)


def told_reply(asked: Asked, reply: Reply) -> list[str]:
    match reply:
        case JoinReply():
            return [_told_join(reply)]
        case SyncReply(error=ErrorCode.NONE):
            return [f"ok assignment={reply.assignment.decode()}"]
        case SyncReply(assignment_error=str(why)):
            return [f"{reply.error.name}, assignment error: {why}"]
        case SyncReply() | HeartbeatReply() | DeleteReply():
            return [_error(reply.error)]
        case CommitReply():
            return [_errors(reply.errors)]
        case LeaveReply() | DeleteOffsetsReply():
            return [reply.error.name if reply.error else _errors(reply.errors)]
        case OffsetsReply():
            assert isinstance(asked, FetchOffsets)
            return [_told_offsets(asked, reply)]
        case DescribeReply():
            return _told_group(reply)
        case ListReply():
            if reply.error:
                return [reply.error.name]
            groups = [f"  {g.group_id} {g.protocol_type or '-'} {g.state}" for g in reply.groups]
            return [f"ok, {counted(len(groups), 'group')}", *groups]


def _told_join(reply: JoinReply) -> str:
    if reply.error:
        return f"{reply.error.name} id={reply.member_id}" if reply.member_id else reply.error.name
    words = [
        f"ok id={reply.member_id}",
        f"generation={reply.generation}",
        f"protocol={reply.protocol}",
        f"leader={reply.leader}",
    ]
    if reply.members:
        words.append("members=" + ";".join(_told_joined(m) for m in reply.members))
    if reply.skip_assignment:
        words.append("skip_assignment")
    return " ".join(words)


def _told_joined(member: JoinedMember) -> str:
    return f"{member.member_id}:{member.metadata.decode()}"


def _told_offsets(asked: FetchOffsets, reply: OffsetsReply) -> str:
    if reply.error:
        return reply.error.name
    if asked.partitions is None:
        found = [f"{o.topic}-{o.partition}={o.offset}" for o in reply.offsets if o is not None]
    else:
        found = [
            f"{topic}-{index}={'none' if offset is None else offset.offset}"
            for (topic, index), offset in zip(asked.partitions, reply.offsets, strict=True)
        ]
    return " ".join(["ok", *found])


def _told_group(reply: DescribeReply) -> list[str]:
    words = [_error(reply.error), reply.state]
    words += [word for word in (reply.protocol_type, reply.protocol) if word]
    return [" ".join(words), *(_told_member(member) for member in reply.members)]


def _told_member(member: DescribedMember) -> str:
    words = [f"  {member.member_id}"]
    if member.instance_id is not None:
        words.append(f"instance={member.instance_id}")
    if member.metadata:
        words.append(f"metadata={member.metadata.decode()}")
    if member.assignment:
        words.append(f"assignment={member.assignment.decode()}")
    return " ".join(words)
