"""Format the history of a world as text, one line for each entry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from partage.coordinator.records import (
    GroupRecord,
    GroupTombstone,
    KeyedRecord,
    OffsetRecord,
    OffsetTombstone,
)
from partage.lab import history
from partage.lab.environment.clock import START_MS
from partage.lab.history import HistoryEntry
from partage.model.errors import ErrorCode

#: Frequent requests, which are shown only with ``verbose``.
_ROUTINE_REQUESTS: Final = ("FetchRequest", "ProduceRequest", "FindCoordinatorRequest")


def format_history(entries: list[HistoryEntry], *, verbose: bool = False) -> Iterator[str]:
    """Yield the lines of a trace, with the time in seconds since the start of the world.

    Args:
        entries: The history.
        verbose: Include routine requests, successful heartbeats and records.
    """
    for entry, text in describe_history(entries, verbose=verbose):
        yield f"{(entry.at_ms - START_MS) / 1000:9.3f}  {text}"


def describe_history(
    entries: list[HistoryEntry], *, verbose: bool = False
) -> Iterator[tuple[HistoryEntry, str]]:
    """Yield each entry that a trace shows, with its text. `format_history` has the arguments."""
    for entry in entries:
        text = _line(entry, verbose)
        if text is not None:
            yield entry, text


def _line(entry: HistoryEntry, verbose: bool) -> str | None:
    match entry:
        case history.Incident(what=what, detail=detail):
            return f"! {what.replace('_', ' ')}" + (f": {detail}" if detail else "")
        case history.FaultsHealed():
            return "! all faults are healed"
        case history.BrokerDied(cause=how):
            return f"! broker {entry.broker} died: {how}"
        case history.ShardLoaded(state=state):
            return f"= broker {entry.broker} loaded shard {entry.shard} with {len(state)} keys"
        case history.ShardAcquired():
            return f"= broker {entry.broker} acquired shard {entry.shard}"
        case history.ShardResigned():
            return f"= broker {entry.broker} dropped shard {entry.shard}"
        case history.LogWriteFailed():
            return f"! broker {entry.broker} failed to write the log of shard {entry.shard}"
        case history.RecordsAppended(records=records):
            return f"  > broker {entry.broker} appends: " + "; ".join(map(_record_text, records))
        case history.RecordsDurable(count=count):
            return f"  > broker {entry.broker}: {count} durable"
        case history.OwnershipChanged():
            held = (
                " ".join(f"{topic}-{index}" for topic, index in entry.partitions) or "no partition"
            )
            return f"{entry.process} owns {held} (generation {entry.generation})"
        case history.MemberExpired():
            return f"  {entry.member_id} expired: {entry.reason}"
        case history.RecordsDelivered() if verbose:
            first, last = entry.records[0][0], entry.records[-1][0]
            topic, index = entry.partition
            return f"{entry.process} reads {topic}-{index} {first}..{last}"
        case history.RecordProduced() if verbose:
            return f"record {entry.offset} of {entry.partition[0]}-{entry.partition[1]} is stored"
        case history.RequestReceived():
            return _request_line(entry, verbose)
        case history.ResponseSent():
            return _response_line(entry, verbose)
    return None


def _request_line(entry: history.RequestReceived, verbose: bool) -> str | None:
    message: Any = entry.message
    name = type(message).__name__
    if not verbose and name in (*_ROUTINE_REQUESTS, "HeartbeatRequest", "OffsetFetchRequest"):
        return None
    what = f"{name.removesuffix('Request')} v{entry.version}"
    parts = [f"{entry.client} -> {entry.broker}: {what} #{entry.serial}"]
    if member_id := getattr(message, "member_id", ""):
        parts.append(f"as {member_id}")
    generation = getattr(message, "generation_id", None)
    generation = getattr(message, "generation_id_or_member_epoch", generation)
    if generation is not None:
        parts.append(f"generation {generation}")
    if reason := getattr(message, "reason", None):
        parts.append(f"({reason})")
    if assignments := getattr(message, "assignments", None):
        parts.append(f"with {len(assignments)} assignments")
    return " ".join(parts)


def _response_line(entry: history.ResponseSent, verbose: bool) -> str | None:
    message: Any = entry.message
    name = type(message).__name__
    codes = _error_codes(message)
    is_fine = codes <= {0}
    if not verbose:
        if name in ("FetchResponse", "ProduceResponse", "FindCoordinatorResponse"):
            return None
        if is_fine and name in ("HeartbeatResponse", "OffsetFetchResponse"):
            return None
    said = "ok" if is_fine else " ".join(_error_name(code) for code in sorted(codes) if code)
    parts = [f"{entry.request.client} <- {name.removesuffix('Response')} #{entry.request.serial}"]
    parts.append(said)
    if is_fine and name == "JoinGroupResponse":
        leads = "leads" if message.leader == message.member_id else "follows"
        parts.append(f"generation {message.generation_id}: {message.member_id} {leads}")
    return ": ".join(parts[:2]) + "".join(f", {part}" for part in parts[2:])


def _error_codes(message: Any) -> set[int]:
    codes = {getattr(message, "error_code", 0)}
    for topic in getattr(message, "topics", None) or ():
        codes |= {getattr(p, "error_code", 0) for p in getattr(topic, "partitions", ())}
    for group in getattr(message, "groups", None) or ():
        codes.add(getattr(group, "error_code", 0))
    for member in getattr(message, "members", None) or ():
        codes.add(getattr(member, "error_code", 0))
    return codes


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _record_text(record: KeyedRecord) -> str:
    match record:
        case GroupRecord(awaiting_sync=True):
            ids = " ".join(m.member_id for m in record.members)
            return f"{record.group_id} generation {record.generation} of {ids}"
        case GroupRecord():
            what = "assigned" if record.members else "empty"
            return f"{record.group_id} generation {record.generation} {what}"
        case GroupTombstone():
            return f"{record.group_id} removed"
        case OffsetRecord():
            place = f"{record.group_id} {record.topic}-{record.partition}"
            return f"{place} = {record.offset}"
        case OffsetTombstone():
            return f"{record.group_id} {record.topic}-{record.partition} removed"
