"""The catalogue of topics: one file that is replaced as a whole at every change.

A method decides, changes the catalogue in memory and returns a `CatalogueChange`. A shell makes
changes durable in order, with `apply_change`, before it answers. If that fails, the catalogue is
ahead of its file, and the broker must stop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from partage.log.catalogue.topic_config import check_configs
from partage.log.catalogue.topic_names import (
    INTERNAL_TOPICS,
    TOPIC_NAME_MAX,
    check_topic_name,
    find_name_collision,
)
from partage.log.disk import Disk
from partage.log.errors import DamagedFileError
from partage.log.io import read_file, replace_file
from partage.log.layout import (
    CATALOGUE_FILE,
    CHECKPOINT_FILE,
    DELETED_SUFFIX,
    deleted_directory,
    partition_directory,
)
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.wire.records.checksum import crc32c

NEW_PARTITIONS_MAX: Final = 10_000  # in one request; the limit of Kafka's controller
_VERSION: Final = 1


class TopicDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A topic with its own configs, as text. ``topic_id`` has 16 bytes.

    In a cluster with several brokers, ``brokers`` holds the id of the broker of each partition. It
    is empty if one broker hosts all partitions.
    """

    name: str
    topic_id: bytes
    partition_count: int
    configs: Mapping[str, str]
    brokers: tuple[int, ...] = ()

    def partitions_on(self, broker_id: int) -> list[int]:
        """Return the partitions that a broker hosts."""
        if not self.brokers:
            return list(range(self.partition_count))
        return [index for index, holder in enumerate(self.brokers) if holder == broker_id]

    @property
    def is_internal(self) -> bool:
        """True if coordinators keep their state in this topic."""
        return self.name in INTERNAL_TOPICS


class CatalogueChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the catalogue that is decided but not durable yet.

    The shell may remove the directories in ``removals`` at any time after the change.
    """

    topic: TopicDefinition
    content: bytes
    directories: Sequence[str] = ()  # to create
    renames: Sequence[tuple[str, str]] = ()

    @property
    def removals(self) -> list[str]:
        """The renamed directories, which are no longer needed."""
        return [new for _, new in self.renames]


class _Entry(msgspec.Struct, frozen=True):
    """A topic in the catalogue file."""

    name: str
    id: str
    partitions: int
    configs: dict[str, str] = {}
    brokers: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET


class _Catalogue(msgspec.Struct, frozen=True):
    version: int
    topics: list[_Entry]
    deleting: list[_Entry]  # their directories may not have been renamed yet


class _File(msgspec.Struct, frozen=True):
    crc32c: str
    catalogue: _Catalogue


class TopicCatalogue:
    """All topics in order of creation, from the view of broker ``broker_id``."""

    def __init__(
        self,
        topics: Sequence[TopicDefinition] = (),
        deleting: Sequence[TopicDefinition] = (),
        *,
        broker_id: int = 0,
    ) -> None:
        self._broker_id = broker_id
        self._topics = {topic.name: topic for topic in topics}
        self._names = {topic.topic_id: topic.name for topic in topics}
        self._deleting = list(deleting)

    @classmethod
    def load(cls, disk: Disk, broker_id: int = 0) -> TopicCatalogue:
        """Load the catalogue from the data directory; empty in a new directory.

        Completes deletions that a crash interrupted.

        Raises:
            DamagedFileError: The catalogue is missing although there are logs, or cannot be read.
        """
        content = read_file(disk, CATALOGUE_FILE)
        if content is None and any(read_file(disk, CHECKPOINT_FILE) or b""):
            raise DamagedFileError(
                f"{CATALOGUE_FILE} is missing, but the data directory has logs. Restore it from a "
                f"copy, or start with an empty directory."
            )
        catalogue = _Catalogue(_VERSION, [], []) if content is None else _decode(content)
        topics = cls(
            [_topic(entry) for entry in catalogue.topics],
            [_topic(entry) for entry in catalogue.deleting],
            broker_id=broker_id,
        )
        topics._finish_deletions(disk)
        return topics

    def __iter__(self) -> Iterator[TopicDefinition]:
        return iter(self._topics.values())

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, name: object) -> bool:
        return name in self._topics

    def get(self, name: str) -> TopicDefinition | None:
        """Return the topic with this name."""
        return self._topics.get(name)

    def by_id(self, topic_id: bytes) -> TopicDefinition | None:
        """Return the topic with this id."""
        return self._topics.get(self._names.get(topic_id, ""))

    def check_create(
        self, name: str, partition_count: int, configs: Mapping[str, str | None]
    ) -> Refusal | None:
        """Return why a topic cannot be created; None if it can.

        The codes are INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS,
        POLICY_VIOLATION and INVALID_CONFIG.
        """
        if fault := check_topic_name(name):
            return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
        if name in self._topics:
            return Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' already exists")
        if other := find_name_collision(name, self._topics):
            return Refusal(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic '{name}' collides with '{other}': '.' and '_' are treated as equal",
            )
        if partition_count < 1:
            return Refusal(ErrorCode.INVALID_PARTITIONS, "a topic must have at least one partition")
        return _check_partition_count(partition_count) or check_configs(configs)

    def create(
        self,
        name: str,
        topic_id: bytes,
        partition_count: int,
        configs: Mapping[str, str],
        brokers: Sequence[int] = (),
    ) -> CatalogueChange | Refusal:
        """Add a topic with a new id; refuse as `check_create` does."""
        if refusal := self.check_create(name, partition_count, configs):
            return refusal
        topic = TopicDefinition(
            name=name,
            topic_id=topic_id,
            partition_count=partition_count,
            configs=dict(configs),
            brokers=tuple(brokers),
        )
        return self._put(topic, new_partitions=range(partition_count))

    def delete(self, name: str) -> CatalogueChange | Refusal:
        """Remove a topic and rename its directories; refuse with UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self._topics.get(name)
        if topic is None:
            return _unknown(name)
        del self._topics[name], self._names[topic.topic_id]
        self._deleting = [topic]  # earlier ones were renamed before this change becomes durable
        return CatalogueChange(topic=topic, content=self._encode(), renames=_renames(topic))

    def check_add_partitions(self, name: str, partition_count: int) -> Refusal | None:
        """Return why a topic cannot grow to ``partition_count`` partitions; None if it can.

        The codes are UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS and POLICY_VIOLATION.
        """
        topic = self._topics.get(name)
        if topic is None:
            return _unknown(name)
        if partition_count <= topic.partition_count:
            return Refusal(
                ErrorCode.INVALID_PARTITIONS,
                f"topic '{name}' has {topic.partition_count} partitions: it can only grow, not "
                f"change to {partition_count}",
            )
        return _check_partition_count(partition_count - topic.partition_count)

    def add_partitions(
        self, name: str, partition_count: int, brokers: Sequence[int] = ()
    ) -> CatalogueChange | Refusal:
        """Set a topic's partition count; refuse as `check_add_partitions` does.

        ``brokers`` are the ids of the hosting brokers in a cluster with several.
        """
        if refusal := self.check_add_partitions(name, partition_count):
            return refusal
        topic = self._topics[name]
        added = range(topic.partition_count, partition_count)
        grown = replace(topic, partition_count=partition_count, brokers=tuple(brokers))
        return self._put(grown, new_partitions=added)

    def set_configs(self, name: str, configs: Mapping[str, str]) -> CatalogueChange | Refusal:
        """Replace all of a topic's own configs.

        Refuses with UNKNOWN_TOPIC_OR_PARTITION or INVALID_CONFIG.
        """
        if name not in self._topics:
            return _unknown(name)
        if refusal := check_configs(configs):
            return refusal
        return self._put(replace(self._topics[name], configs=dict(configs)))

    def _put(self, topic: TopicDefinition, new_partitions: Iterable[int] = ()) -> CatalogueChange:
        self._topics[topic.name] = topic
        self._names[topic.topic_id] = topic.name
        held = set(topic.partitions_on(self._broker_id))
        made = [partition_directory(topic.name, each) for each in new_partitions if each in held]
        return CatalogueChange(topic=topic, content=self._encode(), directories=made)

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
            if name.endswith(DELETED_SUFFIX):
                disk.remove(name)


def apply_change(disk: Disk, change: CatalogueChange) -> None:
    """Make a change durable. After an `OSError` the broker must stop."""
    for directory in change.directories:
        disk.make_directory(directory)
    replace_file(disk, CATALOGUE_FILE, change.content)  # also syncs the names of the directories
    _rename(disk, change.renames)


def _rename(disk: Disk, renames: Sequence[tuple[str, str]]) -> None:
    names = set(disk.names("")) if renames else set()
    for old, new in renames:
        if old in names:
            disk.rename(old, new)
    if renames:
        disk.sync_directory("")


def _renames(topic: TopicDefinition) -> list[tuple[str, str]]:
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
        raise DamagedFileError(
            f"{CATALOGUE_FILE} cannot be read: {error}. Restore it from a copy."
        ) from None
    if file.catalogue.version != _VERSION:
        raise DamagedFileError(
            f"{CATALOGUE_FILE} has version {file.catalogue.version}, but this program supports "
            f"only version {_VERSION}. Use the program that wrote it."
        )
    if file.crc32c != _checksum(file.catalogue):
        raise DamagedFileError(
            f"{CATALOGUE_FILE} does not match its checksum, {file.crc32c}. Restore it from a copy. "
            f"If it was changed on purpose, set the checksum to {_checksum(file.catalogue)}."
        )
    return file.catalogue


def _checksum(catalogue: _Catalogue) -> str:
    return f"{crc32c(msgspec.json.encode(catalogue)):08x}"


def _topic(entry: _Entry) -> TopicDefinition:
    return TopicDefinition(
        name=entry.name,
        topic_id=bytes.fromhex(entry.id),
        partition_count=entry.partitions,
        configs=entry.configs,
        brokers=() if isinstance(entry.brokers, msgspec.UnsetType) else entry.brokers,
    )


def _entry(topic: TopicDefinition) -> _Entry:
    return _Entry(
        topic.name,
        topic.topic_id.hex(),
        topic.partition_count,
        dict(topic.configs),
        topic.brokers or msgspec.UNSET,
    )


def _check_partition_count(added: int) -> Refusal | None:
    if added <= NEW_PARTITIONS_MAX:
        return None
    return Refusal(
        ErrorCode.POLICY_VIOLATION,
        f"one request can create at most {NEW_PARTITIONS_MAX} partitions, not {added}",
    )


def _unknown(name: str) -> Refusal:
    return Refusal(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{name[:TOPIC_NAME_MAX]}' does not exist"
    )
