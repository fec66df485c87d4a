"""The state of the groups with the consumer protocol, decoded from the coordinator's log.

The decoder shares no code with the product: it follows Kafka's schemas of the record types 3, 5 to
8 and 16.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

_GROUP, _MEMBER, _TARGET, _MEMBER_TARGET, _ASSIGNMENT, _REGEX = 3, 5, 6, 7, 8, 16
#: The field of a member with the classic protocol is null; Kafka's default is no null.
_NO_CLASSIC_MEMBER: Final = (0, b"\0")
_TYPES: Final = frozenset({_GROUP, _MEMBER, _TARGET, _MEMBER_TARGET, _ASSIGNMENT, _REGEX})

#: A partition: the id of its topic, and its number.
LoggedPartition = tuple[bytes, int]


class LoggedMember(NamedTuple):
    """A member, as its records show it.

    ``assigned`` and ``pending`` have the epoch at which each partition was assigned.
    """

    is_stored: bool = False  # has a record of type 5
    instance_id: str | None = None
    topics: tuple[str, ...] = ()
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    target: frozenset[LoggedPartition] = frozenset()
    epoch: int = 0
    previous_epoch: int = 0
    state: int = 0
    assigned: Mapping[LoggedPartition, int] = {}
    pending: Mapping[LoggedPartition, int] = {}
    is_classic: bool = False  # uses the classic protocol

    def __str__(self) -> str:
        """Return the fields; the target is sorted, because a set has another order per process."""
        return str({**self._asdict(), "target": sorted(self.target)})

    @property
    def held(self) -> frozenset[LoggedPartition]:
        """The partitions that no other member may get."""
        return frozenset(self.assigned) | frozenset(self.pending)


class LoggedGroup(NamedTuple):
    """A group after the records so far; ``epoch`` is None if it does not exist."""

    epoch: int | None = None
    target_epoch: int = 1
    members: Mapping[str, LoggedMember] = {}
    regexes: Mapping[str, tuple[str, ...]] = {}

    def stored_members(self) -> dict[str, LoggedMember]:
        """Return the members that have not left."""
        return {name: each for name, each in self.members.items() if each.is_stored}


class LogChangeKey(NamedTuple):
    """The key of a record: its type, the group, and the member or regular expression."""

    type: int
    group_id: str
    name: str = ""
    is_tombstone: bool = False


def parse_key(key: bytes, value: bytes | None) -> LogChangeKey | None:
    """Return the key of a record of a group with the consumer protocol, otherwise None."""
    reader = _Reader(key)
    key_type = reader.int16()
    if key_type not in _TYPES:
        return None
    group_id = reader.short_string()
    name = "" if key_type in (_GROUP, _TARGET) else reader.short_string()
    return LogChangeKey(key_type, group_id, name, value is None)


def apply_record(group: LoggedGroup, key: LogChangeKey, value: bytes | None) -> LoggedGroup:
    """Return the group after a record."""
    if value is None:
        return _apply_tombstone(group, key)
    reader = _Reader(value)
    assert reader.int16() == 0, "the version of the value is unknown"
    member = group.members.get(key.name, LoggedMember())
    match key.type:
        case 3:
            return group._replace(epoch=reader.int32())
        case 6:
            return group._replace(target_epoch=reader.int32())
        case 16:
            topics = tuple(reader.array(reader.text))
            return group._replace(regexes={**group.regexes, key.name: topics})
        case 5:
            instance_id = reader.optional_text()
            reader.optional_text()  # rack
            reader.text(), reader.text()  # client id and host
            topics = tuple(reader.array(reader.text))
            regex, timeout_ms = reader.optional_text() or None, reader.int32()
            assignor = reader.optional_text() or None
            is_classic = _NO_CLASSIC_MEMBER not in reader.tags()
            member = member._replace(
                is_stored=True,
                instance_id=instance_id,
                topics=topics,
                regex=regex,
                rebalance_timeout_ms=timeout_ms,
                assignor=assignor,
                is_classic=is_classic,
            )
        case 7:
            target = [each for of_topic in reader.array(reader.topic) for each in of_topic]
            member = member._replace(target=frozenset(target))
        case 8:
            epoch, previous, state = reader.int32(), reader.int32(), reader.int8()
            assigned = dict(each for part in reader.array(reader.epoched_topic) for each in part)
            pending = dict(each for part in reader.array(reader.epoched_topic) for each in part)
            member = member._replace(
                epoch=epoch,
                previous_epoch=previous,
                state=state,
                assigned={place: epoch if at is None else at for place, at in assigned.items()},
                pending={place: epoch if at is None else at for place, at in pending.items()},
            )
    return group._replace(members={**group.members, key.name: member})


def _apply_tombstone(group: LoggedGroup, key: LogChangeKey) -> LoggedGroup:
    if key.type == _GROUP:
        return LoggedGroup()
    if key.type == _TARGET:
        return group._replace(target_epoch=1)
    if key.type == _REGEX:
        left = {regex: topics for regex, topics in group.regexes.items() if regex != key.name}
        return group._replace(regexes=left)
    members = dict(group.members)
    member = members.pop(key.name, None)
    if member is not None and key.type != _MEMBER:
        empty = LoggedMember()
        members[key.name] = (
            member._replace(target=empty.target)
            if key.type == _MEMBER_TARGET
            else member._replace(**{each: getattr(empty, each) for each in _ASSIGNMENT_FIELDS})
        )
    return group._replace(members=members)


_ASSIGNMENT_FIELDS: Final = ("epoch", "previous_epoch", "state", "assigned", "pending")


class _Reader:
    """Reads Kafka's types from bytes."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def _take(self, size: int) -> bytes:
        self._at += size
        return self._content[self._at - size : self._at]

    def int8(self) -> int:
        return int.from_bytes(self._take(1), "big", signed=True)

    def int16(self) -> int:
        return int(struct.unpack(">h", self._take(2))[0])

    def int32(self) -> int:
        return int(struct.unpack(">i", self._take(4))[0])

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value
            shift += 7

    def short_string(self) -> str:
        return self._take(self.int16()).decode()

    def optional_text(self) -> str | None:
        size = self.varint() - 1
        return None if size < 0 else self._take(size).decode()

    def text(self) -> str:
        return self.optional_text() or ""

    def array(self, item: Callable[[], T]) -> list[T]:
        return [item() for _ in range(self.varint() - 1)]

    def topic(self) -> list[LoggedPartition]:
        topic_id, numbers = self._take(16), self.array(self.int32)
        self.tags()
        return [(topic_id, number) for number in numbers]

    def epoched_topic(self) -> list[tuple[LoggedPartition, int | None]]:
        topic_id, numbers = self._take(16), self.array(self.int32)
        epochs: list[int | None] = [None] * len(numbers)
        for tag, content in self.tags():
            if tag == 0 and content[:1] != b"\0":
                found = _Reader(content)
                epochs = [*found.array(found.int32)]
        return [((topic_id, n), epoch) for n, epoch in zip(numbers, epochs, strict=True)]

    def tags(self) -> list[tuple[int, bytes]]:
        return [(self.varint(), self._take(self.varint())) for _ in range(self.varint())]
