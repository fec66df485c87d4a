"""What happens in groups, as JSON in the topic ``__group_events``.

A record's key is the group's id, its value one `GroupEvent` in JSON; ``docs/group-events.md`` has
the schema. A reader passes over fields that it does not know, and events too: what is added does
not change `VERSION`, what is changed does.

Of several brokers each writes to a partition of its own. A group's events carry the epoch in which
its coordinator had it, and those of a higher epoch came later, whatever clocks say: `in_order`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from partage.coordinator.outcome import Happening, Notice
from partage.coordinator.records import GroupSaved, SavedMember
from partage.wire.consumer_protocol import (
    TopicPartitions,
    decode_assignment,
    decode_subscription,
)
from partage.wire.primitives import Malformed

TOPIC: Final = "__group_events"
#: A week, or 256 MiB. Large groups make large records, but never one of a mebibyte.
TOPIC_CONFIGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": str(7 * 24 * 60 * 60 * 1000),
    "retention.bytes": str(256 * 1024 * 1024),
    "segment.bytes": str(32 * 1024 * 1024),
    "compression.type": "producer",
}
VERSION: Final = 1

#: Two events that no core tells of: the lag of a group, and events that were lost.
LAG: Final = "lag"
DROPPED: Final = "dropped"

#: Clients put any words they like into requests, and of any length.
_TEXT_MAX: Final = 255
#: A generation of more than so many bytes becomes several records.
_PART_BYTES: Final = 256 * 1024
_MEMBER_BYTES: Final = 200  # about what a member without partitions takes
_PARTITION_BYTES: Final = 6
_LAG_BYTES: Final = 16  # what a partition's lag takes
#: About so many of them, which are some thousand partitions, are described in a turn.
_BYTES_A_TURN: Final = 16 * 1024
#: A member that has more is told of by their number.
_PARTITIONS_MAX: Final = 20_000

#: Partitions of topics, by topic, in order.
Partitions = dict[str, list[int]]


class EventMember(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A member of a generation.

    ``joined_ms`` and ``owned`` come with "generation started": when its JoinGroup arrived, and the
    partitions that it stated to own then, which it went on reading. ``assigned_ms`` and
    ``assigned`` come with "assigned" and "loaded". None stands for what is not known: who did not
    join, was not answered, or is no consumer.
    """

    member_id: str
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    joined_ms: int | None = None
    owned: Partitions | None = None
    assigned_ms: int | None = None
    assigned: Partitions | None = None
    partition_count: int | None = None  # where they are too many to be listed


class GroupEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event; ``event`` is a `Happening`, `LAG` or `DROPPED`. Times are ms since the epoch."""

    version: int
    event: str
    at_ms: int
    group_id: str
    generation: int
    cause: str | None = None
    reason: str = ""
    # Of the member that it is about.
    member_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    session_timeout_ms: int | None = None
    # Of the generation. Of a large one each record has some of the members; of a lag that is told
    # of very many partitions, some of these.
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: list[EventMember] | None = None
    part: int = 1
    parts: int = 1
    # Of a commit that was refused, so many times.
    topics: list[str] | None = None
    count: int = 1
    #: How many records each partition has that are not committed, by topic and partition.
    lag: dict[str, dict[int, int]] | None = None
    # Of several brokers: who wrote it, and the epoch in which that broker had the group.
    broker_id: int | None = None
    epoch: int | None = None


class _Epoch(msgspec.Struct):
    epoch: int | None = None


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is behind, by topic and partition, in records."""

    at_ms: int
    group_id: str
    generation: int
    lag: dict[str, dict[int, int]]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(GroupEvent)
_epoch_decoder = msgspec.json.Decoder(_Epoch)


def encode_event(event: GroupEvent) -> bytes:
    """The record's value."""
    return _encoder.encode(event)


def decode_event(value: bytes) -> GroupEvent:
    """The event in a record's value.

    Raises:
        Malformed: it is none.
    """
    try:
        return _decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"not an event of a group: {error}") from None


def in_order(values: Iterable[bytes | None]) -> list[int]:
    """The places of a group's records in the order in which what they tell of happened.

    ``values`` come partition by partition, each in the order of its offsets. In one epoch one
    broker has the group, and writes to one partition; a broker that has it again later does so in
    a higher epoch. What has none comes first: a broker that is alone has one partition.
    """
    epochs = [_epoch_of(value or b"") for value in values]
    return sorted(range(len(epochs)), key=epochs.__getitem__)


def _epoch_of(value: bytes) -> int:
    try:
        epoch = _epoch_decoder.decode(value).epoch
    except (msgspec.DecodeError, UnicodeDecodeError):
        return -1
    return -1 if epoch is None else epoch


def lag_events(sample: Lag) -> Iterator[GroupEvent | None]:
    """The events that tell of a lag; None where a shell may do something else."""
    parts: list[dict[str, dict[int, int]]] = [{}]
    size = paused = 0
    for topic, of_topic in sample.lag.items():
        for partition, lag in of_topic.items():
            if size >= _PART_BYTES:
                parts.append({})
                size = paused = 0
            if topic not in parts[-1]:
                parts[-1][topic] = {}
                size += len(topic) + _PARTITION_BYTES
            parts[-1][topic][partition] = lag
            size += _LAG_BYTES
            if size - paused >= _BYTES_A_TURN:
                paused = size
                yield None
    for part, lags in enumerate(parts, start=1):
        yield GroupEvent(
            version=VERSION,
            event=LAG,
            at_ms=sample.at_ms,
            group_id=sample.group_id,
            generation=sample.generation,
            lag=lags,
            part=part,
            parts=len(parts),
        )


def dropped_event(at_ms: int, count: int) -> GroupEvent:
    """The event that says how many others, of any groups, are missing before it."""
    return GroupEvent(
        version=VERSION, event=DROPPED, at_ms=at_ms, group_id="", generation=-1, count=count
    )


def events_of(notice: Notice, count: int = 1) -> Iterator[GroupEvent | None]:
    """The events that tell of a notice; ``count`` is how often it came.

    Large generations take a while: None is given now and then, for a shell to do something else.
    """
    member, saved = notice.member, notice.saved
    shared: dict[str, Any] = {
        "version": VERSION,
        "event": str(notice.happening),
        "at_ms": notice.at_ms,
        "group_id": notice.group_id,
        "generation": notice.generation,
        "cause": None if notice.cause is None else str(notice.cause),
        "reason": notice.reason[:_TEXT_MAX],
        "member_id": None if notice.member_id is None else notice.member_id[:_TEXT_MAX],
    }
    if member is not None:
        shared |= {
            "client_id": member.client_id[:_TEXT_MAX],
            "client_host": member.client_host,
            "instance_id": member.instance_id,
            "session_timeout_ms": member.session_timeout_ms,
        }
    if saved is None:
        topics = [topic[:_TEXT_MAX] for topic in notice.topics] or None
        yield GroupEvent(**shared, topics=topics, count=count)
        return
    shared |= {
        "protocol_type": saved.protocol_type,
        "protocol": saved.protocol,
        "leader": saved.leader,
    }
    parts: list[list[EventMember]] = [[]]
    size = worked = 0
    describe = _Describing(saved, notice)
    for number, of in enumerate(saved.members):
        if worked >= _BYTES_A_TURN:
            worked = 0
            yield None
        described, weight = describe.member(of, number)
        worked += weight + len(of.subscription) + len(of.assignment)
        if parts[-1] and size + weight > _PART_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(described)
        size += weight
    for part, members in enumerate(parts, start=1):
        yield GroupEvent(**shared, members=members, part=part, parts=len(parts))


class _Describing:
    """Members of one generation; what many of them share is decoded once."""

    def __init__(self, saved: GroupSaved, notice: Notice) -> None:
        self._is_consumer = saved.protocol_type == "consumer"
        self._times_ms = notice.times_ms
        self._starts = notice.happening is Happening.GENERATION_STARTED
        self._known: dict[bytes, Partitions | None] = {}

    def member(self, of: SavedMember, number: int) -> tuple[EventMember, int]:
        """The member at a place, and about how many bytes it takes."""
        time_ms = self._times_ms[number] if self._times_ms else None
        partitions: Partitions | None = None
        if self._is_consumer:
            partitions = self._partitions(of.subscription if self._starts else of.assignment)
        count = sum(map(len, partitions.values())) if partitions else 0
        is_large = count > _PARTITIONS_MAX
        if is_large:
            partitions = None
        elif partitions:
            partitions = {topic: sorted(numbers) for topic, numbers in partitions.items()}
        described = EventMember(
            member_id=of.member_id,
            client_id=of.client_id[:_TEXT_MAX],
            client_host=of.client_host,
            instance_id=of.instance_id,
            joined_ms=time_ms if self._starts else None,
            owned=partitions if self._starts else None,
            assigned_ms=None if self._starts else time_ms,
            assigned=None if self._starts else partitions,
            partition_count=count if is_large else None,
        )
        names = sum(map(len, partitions)) if partitions else 0
        return described, _MEMBER_BYTES + names + (0 if is_large else count * _PARTITION_BYTES)

    def _partitions(self, content: bytes) -> Partitions | None:
        if content not in self._known:
            decode = _owned if self._starts else _assigned
            try:
                self._known[content] = _by_topic(decode(content))
            except Malformed:
                self._known[content] = None
        return self._known[content]


def _owned(content: bytes) -> list[TopicPartitions]:
    return decode_subscription(content).owned_partitions


def _assigned(content: bytes) -> list[TopicPartitions]:
    # Kafka's coordinator gives no bytes to whom the leader left out.
    return decode_assignment(content).assigned_partitions if content else []


def _by_topic(listed: list[TopicPartitions]) -> Partitions:
    partitions: Partitions = {}
    for of in listed:
        if of.partitions:
            partitions.setdefault(of.topic, []).extend(of.partitions)
    return partitions
