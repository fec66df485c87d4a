"""The catalogue of topics: one file, replaced as a whole at every change.

A method decides, changes what is in memory and returns a `Change`; a shell makes that durable with
`apply_change`, in the order of the changes, before it answers. If that fails the catalogue is
ahead of its file, and the broker has to stop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from crc32c import crc32c
from msgspec.structs import replace

from partage.log.config import check_configs
from partage.log.damage import DamagedFile
from partage.log.disk import Disk
from partage.log.layout import (
    CATALOGUE,
    DELETED,
    MARKERS,
    deleted_directory,
    partition_directory,
)
from partage.log.names import INTERNAL_TOPICS, NAME_MAX, colliding, fault_in_name
from partage.log.outcomes import Refusal
from partage.log.performing import read_file, replace_file
from partage.model.errors import ErrorCode

PARTITIONS_MAX: Final = 10_000  # in one request, as Kafka's controller has it
_VERSION: Final = 1


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic: its own configs only, as text; ``topic_id`` is 16 bytes.

    In a cluster of several, ``brokers`` are the ids of those that hold each partition; empty where
    one broker holds all.
    """

    name: str
    topic_id: bytes
    partition_count: int
    configs: Mapping[str, str]
    brokers: tuple[int, ...] = ()

    def held_by(self, broker_id: int) -> list[int]:
        """The partitions that a broker holds."""
        if not self.brokers:
            return list(range(self.partition_count))
        return [index for index, holder in enumerate(self.brokers) if holder == broker_id]

    @property
    def is_internal(self) -> bool:
        """Whether coordinators keep their state in it."""
        return self.name in INTERNAL_TOPICS


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the catalogue, decided and not yet durable.

    ``removals`` are directories for the shell to remove when it likes, after the change.
    """

    topic: Topic
    content: bytes
    directories: Sequence[str] = ()  # to be made
    renames: Sequence[tuple[str, str]] = ()

    @property
    def removals(self) -> list[str]:
        """The renamed directories, which nobody needs any more."""
        return [new for _, new in self.renames]


class _Entry(msgspec.Struct, frozen=True):
    """A topic as the file has it."""

    name: str
    id: str
    partitions: int
    configs: dict[str, str] = {}
    brokers: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET


class _Catalogue(msgspec.Struct, frozen=True):
    version: int
    topics: list[_Entry]
    deleting: list[_Entry]  # whose directories may not have been renamed yet


class _File(msgspec.Struct, frozen=True):
    crc32c: str
    catalogue: _Catalogue


class Topics:
    """All topics, in the order of their creation, as broker ``broker_id`` keeps them."""

    def __init__(
        self,
        topics: Sequence[Topic] = (),
        deleting: Sequence[Topic] = (),
        *,
        broker_id: int = 0,
    ) -> None:
        self._broker_id = broker_id
        self._topics = {topic.name: topic for topic in topics}
        self._names = {topic.topic_id: topic.name for topic in topics}
        self._deleting = list(deleting)

    @classmethod
    def load(cls, disk: Disk, broker_id: int = 0) -> Topics:
        """The catalogue in the data directory; empty in a new one.

        Finishes what a crash left of deletions. Raises `DamagedFile`.
        """
        content = read_file(disk, CATALOGUE)
        if content is None and any(read_file(disk, MARKERS) or b""):
            raise DamagedFile(
                f"{CATALOGUE} is missing, and there are logs. Restore it from a copy, or begin "
                f"anew in an empty directory."
            )
        catalogue = _Catalogue(_VERSION, [], []) if content is None else _decode(content)
        topics = cls(
            [_topic(entry) for entry in catalogue.topics],
            [_topic(entry) for entry in catalogue.deleting],
            broker_id=broker_id,
        )
        topics._finish_deletions(disk)
        return topics

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, name: object) -> bool:
        return name in self._topics

    def get(self, name: str) -> Topic | None:
        """The topic of this name."""
        return self._topics.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        """The topic of this id."""
        return self._topics.get(self._names.get(topic_id, ""))

    def check_create(
        self, name: str, partition_count: int, configs: Mapping[str, str | None]
    ) -> Refusal | None:
        """Why a topic cannot be created: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS,
        INVALID_PARTITIONS, POLICY_VIOLATION or INVALID_CONFIG; `None` if it can.
        """
        if fault := fault_in_name(name):
            return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
        if name in self._topics:
            return Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists")
        if other := colliding(name, self._topics):
            return Refusal(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {name} is too like {other}: '.' and '_' count as the same",
            )
        if partition_count < 1:
            return Refusal(ErrorCode.INVALID_PARTITIONS, "a topic has at least one partition")
        return _check_partition_count(partition_count) or check_configs(configs)

    def create(
        self,
        name: str,
        topic_id: bytes,
        partition_count: int,
        configs: Mapping[str, str],
        brokers: Sequence[int] = (),
    ) -> Change | Refusal:
        """Add a topic under a fresh id; refused as `check_create` says."""
        if refusal := self.check_create(name, partition_count, configs):
            return refusal
        topic = Topic(
            name=name,
            topic_id=topic_id,
            partition_count=partition_count,
            configs=dict(configs),
            brokers=tuple(brokers),
        )
        return self._put(topic, new_partitions=range(partition_count))

    def delete(self, name: str) -> Change | Refusal:
        """Remove a topic and rename its directories; refused with UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self._topics.get(name)
        if topic is None:
            return _unknown(name)
        del self._topics[name], self._names[topic.topic_id]
        self._deleting = [topic]  # earlier ones were renamed before this change is made durable
        return Change(topic=topic, content=self._encode(), renames=_renames(topic))

    def check_partitions(self, name: str, partition_count: int) -> Refusal | None:
        """Why a topic cannot grow to so many partitions; `None` if it can.

        UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS or POLICY_VIOLATION.
        """
        topic = self._topics.get(name)
        if topic is None:
            return _unknown(name)
        if partition_count <= topic.partition_count:
            return Refusal(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {name} has {topic.partition_count} partitions: cannot make them "
                f"{partition_count}",
            )
        return _check_partition_count(partition_count - topic.partition_count)

    def add_partitions(
        self, name: str, partition_count: int, brokers: Sequence[int] = ()
    ) -> Change | Refusal:
        """Let a topic have so many partitions in all, on ``brokers`` in a cluster of several;
        refused as `check_partitions` says.
        """
        if refusal := self.check_partitions(name, partition_count):
            return refusal
        topic = self._topics[name]
        added = range(topic.partition_count, partition_count)
        grown = replace(topic, partition_count=partition_count, brokers=tuple(brokers))
        return self._put(grown, new_partitions=added)

    def set_configs(self, name: str, configs: Mapping[str, str]) -> Change | Refusal:
        """Give a topic these configs of its own and no others; refused with
        UNKNOWN_TOPIC_OR_PARTITION or INVALID_CONFIG.
        """
        if name not in self._topics:
            return _unknown(name)
        if refusal := check_configs(configs):
            return refusal
        return self._put(replace(self._topics[name], configs=dict(configs)))

    def _put(self, topic: Topic, new_partitions: Iterable[int] = ()) -> Change:
        self._topics[topic.name] = topic
        self._names[topic.topic_id] = topic.name
        held = set(topic.held_by(self._broker_id))
        made = [partition_directory(topic.name, each) for each in new_partitions if each in held]
        return Change(topic=topic, content=self._encode(), directories=made)

    def _encode(self) -> bytes:
        catalogue = _Catalogue(
            _VERSION,
            [_entry(topic) for topic in self._topics.values()],
            [_entry(topic) for topic in self._deleting],
        )
        return msgspec.json.format(msgspec.json.encode(_File(_checksum(catalogue), catalogue)))

    def _finish_deletions(self, disk: Disk) -> None:
        for topic in self._deleting:
            if topic.name not in self._topics:
                _rename(disk, _renames(topic))
        for name in disk.names(""):
            if name.endswith(DELETED):
                disk.remove(name)


def apply_change(disk: Disk, change: Change) -> None:
    """Make a change durable; raises `OSError`, and then the broker has to stop."""
    for directory in change.directories:
        disk.make_directory(directory)
    replace_file(disk, CATALOGUE, change.content)  # syncs the names of the directories too
    _rename(disk, change.renames)


def _rename(disk: Disk, renames: Sequence[tuple[str, str]]) -> None:
    names = set(disk.names("")) if renames else set()
    for old, new in renames:
        if old in names:
            disk.rename(old, new)
    if renames:
        disk.sync_directory("")


def _renames(topic: Topic) -> list[tuple[str, str]]:
    return [
        (
            partition_directory(topic.name, partition),
            deleted_directory(topic.name, partition, topic.topic_id),
        )
        for partition in range(topic.partition_count)
    ]


def _decode(content: bytes) -> _Catalogue:
    try:
        file = msgspec.json.decode(content, type=_File)
    except msgspec.DecodeError as error:
        raise DamagedFile(f"{CATALOGUE} cannot be read: {error}. Restore it from a copy.") from None
    if file.catalogue.version != _VERSION:
        raise DamagedFile(
            f"{CATALOGUE} has version {file.catalogue.version}, and this program knows "
            f"{_VERSION}. Use the program that wrote it."
        )
    if file.crc32c != _checksum(file.catalogue):
        raise DamagedFile(
            f"{CATALOGUE} does not match its checksum, {file.crc32c}. Restore it from a copy; if "
            f"it was changed on purpose, the checksum is now {_checksum(file.catalogue)}."
        )
    return file.catalogue


def _checksum(catalogue: _Catalogue) -> str:
    return f"{crc32c(msgspec.json.encode(catalogue)):08x}"


def _topic(entry: _Entry) -> Topic:
    return Topic(
        name=entry.name,
        topic_id=bytes.fromhex(entry.id),
        partition_count=entry.partitions,
        configs=entry.configs,
        brokers=() if isinstance(entry.brokers, msgspec.UnsetType) else entry.brokers,
    )


def _entry(topic: Topic) -> _Entry:
    return _Entry(
        topic.name,
        topic.topic_id.hex(),
        topic.partition_count,
        dict(topic.configs),
        topic.brokers or msgspec.UNSET,
    )


def _check_partition_count(added: int) -> Refusal | None:
    if added <= PARTITIONS_MAX:
        return None
    return Refusal(
        ErrorCode.POLICY_VIOLATION, f"at most {PARTITIONS_MAX} partitions are made in one request"
    )


def _unknown(name: str) -> Refusal:
    return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name[:NAME_MAX]}")
