"""Group events as JSON records in the topic ``__group_events``.

The key of a record is the group id, the value a `GroupEventRecord` in JSON;
``docs/group-events.md`` has the schema. Readers ignore unknown fields and events. So additions do
not change `VERSION`; changes of meaning do.

In a cluster each broker writes to a separate partition. A record carries the epoch in which the
broker owned the group. A higher epoch is later, whatever the clocks say: see `order_by_epoch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from partage.coordinator.outcome import GroupEvent, GroupEventType, MemberProgress
from partage.coordinator.records import GroupRecord, MemberRecord
from partage.wire.consumer_protocol import (
    ConsumerTopicPartitions,
    decode_assignment,
    decode_subscription,
)
from partage.wire.primitives import MalformedError

TOPIC: Final = "__group_events"
#: Retention of a week, or 256 MiB. A large group makes large records, but always below 1 MiB.
TOPIC_CONFIGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": str(7 * 24 * 60 * 60 * 1000),
    "retention.bytes": str(256 * 1024 * 1024),
    "segment.bytes": str(32 * 1024 * 1024),
    "compression.type": "producer",
}
VERSION: Final = 1

#: Events that the coordinator does not emit: a group's lag, and the number of dropped events.
LAG: Final = "lag"
DROPPED: Final = "dropped"

#: ``group_type`` of a group with the consumer protocol.
CONSUMER: Final = "consumer"

#: Length limit of texts from clients, in characters.
_TEXT_CHARS_MAX: Final = 255
#: A generation of more bytes is split into several records.
_RECORD_BYTES_MAX: Final = 256 * 1024
_MEMBER_BYTES: Final = 200  # estimated bytes of a member without partitions
_PARTITION_BYTES: Final = 6
_LAG_BYTES: Final = 16  # estimated bytes of one partition's lag
#: About this many bytes, or a thousand partitions, are described between two yields to the shell.
_BYTES_PER_STEP: Final = 16 * 1024
#: For a member with more partitions, only their number is written.
_PARTITIONS_MAX: Final = 20_000

#: Sorted partition numbers, by topic.
PartitionsByTopic = dict[str, list[int]]


class EventMember(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A member of a generation.

    "generation started" sets ``joined_ms``, the time when its JoinGroup arrived, and ``owned``, the
    partitions that it reported as owned. "assigned" and "loaded" set ``assigned_ms`` and
    ``assigned``. None means unknown: the member did not join, has no assignment, or is no consumer.

    A member of a group with the consumer protocol has ``member_epoch``, ``state`` and ``assigned``,
    and in ``revoking`` the partitions that it must still give up.
    """

    member_id: str
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    joined_ms: int | None = None
    owned: PartitionsByTopic | None = None
    assigned_ms: int | None = None
    assigned: PartitionsByTopic | None = None
    partition_count: int | None = None  # set instead of the list if there are too many
    # Of a group with the consumer protocol.
    member_epoch: int | None = None
    state: str = ""
    revoking: PartitionsByTopic | None = None


class GroupEventRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The JSON value of a record; ``event`` is a `GroupEventType`, `LAG` or `DROPPED`. Times are in
    ms since the epoch.
    """

    version: int
    event: str
    at_ms: int
    group_id: str
    generation: int
    cause: str | None = None
    reason: str = ""
    # The member that the event is about.
    member_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    session_timeout_ms: int | None = None
    # The generation. A large one is split by members, a large lag by partitions.
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: list[EventMember] | None = None
    part: int = 1
    parts: int = 1
    # A group with the consumer protocol, whose epoch is in ``generation``.
    group_type: str | None = None
    target_epoch: int | None = None
    moved: int | None = None
    # A rejected commit; ``count`` is the number of equal events.
    topics: list[str] | None = None
    count: int = 1
    #: Number of records that are not committed, by topic and partition.
    lag: dict[str, dict[int, int]] | None = None
    # In a cluster: the broker that wrote the record, and the epoch in which it owned the group.
    broker_id: int | None = None
    epoch: int | None = None


class _Epoch(msgspec.Struct):
    epoch: int | None = None


class LagSample(msgspec.Struct, frozen=True, kw_only=True):
    """A sample of a group's lag in records, by topic and partition."""

    at_ms: int
    group_id: str
    generation: int
    lag: dict[str, dict[int, int]]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(GroupEventRecord)
_epoch_decoder = msgspec.json.Decoder(_Epoch)


def encode_event(event: GroupEventRecord) -> bytes:
    """Encode an event as the value of a record."""
    return _encoder.encode(event)


def decode_event(value: bytes) -> GroupEventRecord:
    """Decode the value of a record.

    Raises:
        Malformed: The value is no group event.
    """
    try:
        return _decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedError(f"not a group event: {error}") from None


def order_by_epoch(values: Iterable[bytes | None]) -> list[int]:
    """Return the indexes of a group's records in the order of their events.

    In one epoch one broker owns the group and writes to one partition. If it owns the group again
    later, its epoch is higher. Values without an epoch come first; they are from a single broker
    with one partition.

    Args:
        values: The values partition by partition, each in the order of offsets.
    """
    epochs = [_epoch_of(value or b"") for value in values]
    return sorted(range(len(epochs)), key=epochs.__getitem__)


def _epoch_of(value: bytes) -> int:
    try:
        epoch = _epoch_decoder.decode(value).epoch
    except (msgspec.DecodeError, UnicodeDecodeError):
        return -1
    return -1 if epoch is None else epoch


def lag_records(sample: LagSample) -> Iterator[GroupEventRecord | None]:
    """Yield the records of a lag sample, and None when the shell may do other work."""
    parts: list[dict[str, dict[int, int]]] = [{}]
    size = paused = 0
    for topic, of_topic in sample.lag.items():
        for partition, lag in of_topic.items():
            if size >= _RECORD_BYTES_MAX:
                parts.append({})
                size = paused = 0
            if topic not in parts[-1]:
                parts[-1][topic] = {}
                size += len(topic) + _PARTITION_BYTES
            parts[-1][topic][partition] = lag
            size += _LAG_BYTES
            if size - paused >= _BYTES_PER_STEP:
                paused = size
                yield None
    for part, lags in enumerate(parts, start=1):
        yield GroupEventRecord(
            version=VERSION,
            event=LAG,
            at_ms=sample.at_ms,
            group_id=sample.group_id,
            generation=sample.generation,
            lag=lags,
            part=part,
            parts=len(parts),
        )


def dropped_record(at_ms: int, count: int) -> GroupEventRecord:
    """Return a record with the number of events of any groups that were dropped before it."""
    return GroupEventRecord(
        version=VERSION, event=DROPPED, at_ms=at_ms, group_id="", generation=-1, count=count
    )


def event_records(notice: GroupEvent, count: int = 1) -> Iterator[GroupEventRecord | None]:
    """Yield the records of a group event.

    Large generations take some time. None is yielded now and then, so that the shell can do other
    work.

    Args:
        notice: The group event.
        count: The number of equal events that the record stands for.
    """
    member, saved = notice.member, notice.group_record
    shared: dict[str, Any] = {
        "version": VERSION,
        "event": str(notice.event_type),
        "at_ms": notice.at_ms,
        "group_id": notice.group_id,
        "generation": notice.generation,
        "cause": None if notice.cause is None else str(notice.cause),
        "reason": notice.reason[:_TEXT_CHARS_MAX],
        "member_id": None if notice.member_id is None else notice.member_id[:_TEXT_CHARS_MAX],
    }
    if member is not None:
        shared |= {
            "client_id": member.client_id[:_TEXT_CHARS_MAX],
            "client_host": member.client_host,
            "instance_id": member.instance_id,
            "session_timeout_ms": member.session_timeout_ms or None,
        }
    if notice.is_consumer_group:
        shared |= {
            "group_type": CONSUMER,
            "target_epoch": notice.target_epoch,
            "protocol": notice.assignor,
            "moved": notice.moved,
        }
    if notice.progress:
        yield from _progress_records(notice, shared)
        return
    if saved is None:
        topics = [topic[:_TEXT_CHARS_MAX] for topic in notice.topics] or None
        yield GroupEventRecord(**shared, topics=topics, count=count)
        return
    shared |= {
        "protocol_type": saved.protocol_type,
        "protocol": saved.protocol,
        "leader": saved.leader,
    }
    parts = _MemberParts()
    worked = 0
    describe = _MemberDescriber(saved, notice)
    for number, of in enumerate(saved.members):
        if worked >= _BYTES_PER_STEP:
            worked = 0
            yield None
        described, weight = describe.member(of, number)
        worked += weight + len(of.subscription) + len(of.assignment)
        parts.add(described, weight)
    yield from parts.records(shared)


def _progress_records(
    notice: GroupEvent, shared: dict[str, Any]
) -> Iterator[GroupEventRecord | None]:
    """Yield the records of members of a consumer group, and None when the shell may work."""
    parts = _MemberParts()
    worked = 0
    for progress in notice.progress:
        if worked >= _BYTES_PER_STEP:
            worked = 0
            yield None
        described, weight = _described_progress(progress)
        worked += weight
        parts.add(described, weight)
    yield from parts.records(shared)


def _described_progress(progress: MemberProgress) -> tuple[EventMember, int]:
    """Return the description of a member of a consumer group, and its size in bytes (estimated)."""
    of = progress.member
    sets = progress.assigned, progress.revoking
    count = sum(len(numbers) for each in sets for numbers in each.values())
    is_large = count > _PARTITIONS_MAX
    assigned, revoking = (
        None if is_large else {topic: sorted(numbers) for topic, numbers in each.items()}
        for each in sets
    )
    described = EventMember(
        member_id=of.member_id,
        client_id=of.client_id[:_TEXT_CHARS_MAX],
        client_host=of.client_host,
        instance_id=of.instance_id,
        assigned=assigned,
        partition_count=count if is_large else None,
        member_epoch=progress.epoch,
        state=progress.state,
        revoking=revoking or None,
    )
    names = 0 if is_large else sum(len(topic) for each in sets for topic in each)
    return described, _MEMBER_BYTES + names + (0 if is_large else count * _PARTITION_BYTES)


class _MemberParts:
    """The members of one event, in parts that are small enough for a record."""

    def __init__(self) -> None:
        self._parts: list[list[EventMember]] = [[]]
        self._size = 0

    def add(self, member: EventMember, weight: int) -> None:
        """Add a member with its size in bytes (estimated)."""
        if self._parts[-1] and self._size + weight > _RECORD_BYTES_MAX:
            self._parts.append([])
            self._size = 0
        self._parts[-1].append(member)
        self._size += weight

    def records(self, shared: dict[str, Any]) -> Iterator[GroupEventRecord]:
        """Yield a record with the fields ``shared`` for each part."""
        for part, members in enumerate(self._parts, start=1):
            yield GroupEventRecord(**shared, members=members, part=part, parts=len(self._parts))


class _MemberDescriber:
    """Descriptions of the members of one generation; equal metadata is decoded once."""

    def __init__(self, saved: GroupRecord, notice: GroupEvent) -> None:
        self._is_consumer = saved.protocol_type == "consumer"
        self._times_ms = notice.times_ms
        self._is_generation_start = notice.event_type is GroupEventType.GENERATION_STARTED
        self._known: dict[bytes, PartitionsByTopic | None] = {}

    def member(self, of: MemberRecord, number: int) -> tuple[EventMember, int]:
        """Return the description of a member, and its size in bytes (estimated).

        Args:
            of: The member.
            number: Its index in the generation.
        """
        time_ms = self._times_ms[number] if self._times_ms else None
        partitions: PartitionsByTopic | None = None
        if self._is_consumer:
            partitions = self._partitions(
                of.subscription if self._is_generation_start else of.assignment
            )
        count = sum(map(len, partitions.values())) if partitions else 0
        is_large = count > _PARTITIONS_MAX
        if is_large:
            partitions = None
        elif partitions:
            partitions = {topic: sorted(numbers) for topic, numbers in partitions.items()}
        described = EventMember(
            member_id=of.member_id,
            client_id=of.client_id[:_TEXT_CHARS_MAX],
            client_host=of.client_host,
            instance_id=of.instance_id,
            joined_ms=time_ms if self._is_generation_start else None,
            owned=partitions if self._is_generation_start else None,
            assigned_ms=None if self._is_generation_start else time_ms,
            assigned=None if self._is_generation_start else partitions,
            partition_count=count if is_large else None,
        )
        names = sum(map(len, partitions)) if partitions else 0
        return described, _MEMBER_BYTES + names + (0 if is_large else count * _PARTITION_BYTES)

    def _partitions(self, content: bytes) -> PartitionsByTopic | None:
        if content not in self._known:
            decode = _owned if self._is_generation_start else _assigned
            try:
                self._known[content] = _by_topic(decode(content))
            except MalformedError:
                self._known[content] = None
        return self._known[content]


def _owned(content: bytes) -> list[ConsumerTopicPartitions]:
    return decode_subscription(content).owned_partitions


def _assigned(content: bytes) -> list[ConsumerTopicPartitions]:
    # Kafka's coordinator sends no bytes to a member that the leader left out.
    return decode_assignment(content).assigned_partitions if content else []


def _by_topic(listed: list[ConsumerTopicPartitions]) -> PartitionsByTopic:
    partitions: PartitionsByTopic = {}
    for of in listed:
        if of.partitions:
            partitions.setdefault(of.topic, []).extend(of.partitions)
    return partitions
