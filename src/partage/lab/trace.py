"""Format the history of a world as text, one line for each entry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from partage.coordinator.records import (
    GroupRecord,
    GroupTombstone,
    OffsetRecord,
    OffsetTombstone,
)
from partage.lab import history
from partage.lab.environment.clock import START_MS
from partage.lab.history import HistoryEntry
from partage.lab.offset_log import LogChange, PendingOffset
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
        case history.ZooKeeperSessionExpired():
            return f"! the ZooKeeper session of broker {entry.broker} expired"
        case history.WallClockStepped(difference_ms=difference_ms):
            return f"! the wall clock of broker {entry.broker} differs by {difference_ms} ms"
        case history.RegistrationRemoved():
            return f"! the registration of broker {entry.broker} was removed"
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
        case history.MemberOwnershipChanged():
            held = _partitions_text(entry.partitions) or "no partition"
            return f"{entry.process} owns {held} (epoch {entry.epoch})"
        case history.MemberDelivered() if verbose:
            return f"{entry.process} reads {_partitions_text(entry.partitions)}"
        case history.MemberExpired():
            return f"  {entry.member_id} expired: {entry.reason}"
        case history.RecordsDelivered() if verbose:
            first, last = entry.records[0][0], entry.records[-1][0]
            topic, index = entry.partition
            return f"{entry.process} reads {topic}-{index} {first}..{last}"
        case history.BatchAppended():
            return _batch_line(entry)
        case history.OffsetsMarkerDurable():
            return (
                f"  > broker {entry.broker}: marker of producer {entry.producer_id} is durable in "
                f"group shard {entry.shard}, coordinator epoch {entry.coordinator_epoch}"
            )
        case history.LogCompacted(partition=(topic, index)):
            sizes = [sum(len(each.content) for each in x) for x in (entry.before, entry.after)]
            change = f"from {sizes[0]} to {sizes[1]} bytes"
            return f"= broker {entry.broker} compacted {topic}-{index} {change}"
        case history.LogOpened(partition=(topic, index), end_offset=end_offset):
            return f"= {topic}-{index} is opened and ends at {end_offset}"
        case history.TransactionEnding(tag=tag, is_commit=is_commit):
            return f"{entry.process} {'commits' if is_commit else 'aborts'} {tag.decode()}"
        case history.TransactionEnded(tag=tag, is_commit=is_commit):
            return f"{entry.process}: {tag.decode()} {'committed' if is_commit else 'aborted'}"
        case history.RecordProduced() if verbose:
            return f"record {entry.offset} of {entry.partition[0]}-{entry.partition[1]} is stored"
        case history.RequestReceived():
            return _request_line(entry, verbose)
        case history.ResponseSent():
            return _response_line(entry, verbose)
    return None


def _batch_line(entry: history.BatchAppended) -> str:
    topic, index = entry.partition
    place = f"{topic}-{index} {entry.base_offset}"
    producer = f"producer {entry.producer_id} epoch {entry.producer_epoch}"
    if entry.marker is not None:
        decision = "commit" if entry.marker else "abort"
        coordinator = f"coordinator epoch {entry.coordinator_epoch}"
        return f"  > {place}: {decision} marker of {producer}, {coordinator}"
    values = " ".join(value.decode() for value in entry.values)
    return f"  > {place}: {values} of {producer}"


def _request_line(entry: history.RequestReceived, verbose: bool) -> str | None:
    message: Any = entry.message
    name = type(message).__name__
    if not verbose and name in (*_ROUTINE_REQUESTS, "HeartbeatRequest", "OffsetFetchRequest"):
        return None
    what = f"{name.removesuffix('Request')} v{entry.version}"
    parts = [f"{entry.client} -> {entry.broker}: {what} #{entry.serial}"]
    for name in ("", "v3_and_below_"):
        if transactional_id := getattr(message, f"{name}transactional_id", ""):
            epoch = getattr(message, f"{name}producer_epoch", None)
            parts.append(transactional_id + ("" if epoch is None else f" epoch {epoch}"))
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


def _record_text(record: LogChange) -> str:
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
        case PendingOffset():
            offset = record.offset
            if offset is None:
                return f"{record.group_id}: an offset of producer {record.producer_id} is decided"
            place = f"{offset.group_id} {offset.topic}-{offset.partition}"
            return f"{place} = {offset.offset}, pending for producer {record.producer_id}"
        case _:
            return f"{type(record).__name__} of {record.group_id}"


def _partitions_text(partitions: Iterable[tuple[bytes, int]]) -> str:
    return " ".join(f"{topic_id.hex()[:4]}-{at}" for topic_id, at in sorted(partitions))
