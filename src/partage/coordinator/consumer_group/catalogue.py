"""The values of a shard that all its consumer groups use: groups, topics, configs, sequence
numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from partage.coordinator.consumer_group.embedded_protocol import (
    EmbeddedProtocol,
    NoEmbeddedProtocol,
    TopicPartitions,
)
from partage.coordinator.consumer_group.events import GroupConfig, TopicImage
from partage.coordinator.consumer_group.partitions import PartitionSet, TopicId
from partage.coordinator.group_base import GroupBase
from partage.model.settings import ConsumerGroupSettings


class Catalogue:
    """The topics of the cluster, the configs of the groups, and the number of the last action.

    Args:
        groups: The groups of the shard, of both types, by id; the shard changes them.
        embedded: The formats of the members with the classic protocol.

    Attributes:
        topics: The topics by name; None until the shell has sent them.
        version: The version of the topics.
        updates: The number of updates of the topics and of the configs.
    """

    __slots__ = (
        "_assignment_interval_ms",
        "_by_id",
        "_configs",
        "_digests",
        "_sequence",
        "embedded",
        "groups",
        "topics",
        "updates",
        "version",
    )

    def __init__(
        self,
        groups: dict[str, GroupBase] | None = None,
        embedded: EmbeddedProtocol | None = None,
    ) -> None:
        self.groups: dict[str, GroupBase] = {} if groups is None else groups
        self.embedded: EmbeddedProtocol = embedded or NoEmbeddedProtocol()
        self.topics: Mapping[str, TopicImage] | None = None
        self.version = -1
        self.updates = 0
        self._configs: Mapping[str, GroupConfig] = {}
        self._assignment_interval_ms: int | None = None  # the broker's default, if altered
        self._by_id: dict[TopicId, TopicImage] | None = None
        self._digests: dict[str, tuple[TopicImage, bytes]] = {}
        self._sequence = 0

    def update_topics(self, topics: Mapping[str, TopicImage], version: int) -> None:
        """Replace the topics."""
        self.topics = topics
        self.version = version
        self.updates += 1
        self._by_id = None
        for name in self._digests.keys() - topics.keys():
            del self._digests[name]

    def update_configs(
        self, configs: Mapping[str, GroupConfig], assignment_interval_ms: int | None = None
    ) -> None:
        """Replace the configs of the groups, and the default of the assignment interval."""
        self._configs = configs
        self._assignment_interval_ms = assignment_interval_ms
        self.updates += 1

    def next_sequence(self) -> int:
        """Return the number of the next action. Results of removed groups have older ones."""
        self._sequence += 1
        return self._sequence

    def topic(self, name: str) -> TopicImage | None:
        """Return a topic by its name."""
        return None if self.topics is None else self.topics.get(name)

    def topic_by_id(self, topic_id: TopicId) -> TopicImage | None:
        """Return a topic by its id."""
        if self._by_id is None:
            self._by_id = {topic.topic_id: topic for topic in (self.topics or {}).values()}
        return self._by_id.get(topic_id)

    def to_partition_set(self, partitions: TopicPartitions) -> PartitionSet:
        """Return partitions by topic id; topics that do not exist are left out."""
        found: dict[TopicId, tuple[int, ...]] = {}
        for name, numbers in partitions.items():
            topic = self.topic(name)
            if topic is not None and numbers:
                found[topic.topic_id] = tuple(sorted(numbers))
        return found

    def to_topic_partitions(self, partitions: PartitionSet) -> TopicPartitions:
        """Return partitions by topic name; topics that do not exist are left out."""
        found: dict[str, tuple[int, ...]] = {}
        for topic_id, numbers in partitions.items():
            topic = self.topic_by_id(topic_id)
            if topic is not None:
                found[topic.name] = tuple(sorted(numbers))
        return found

    def metadata_hash(self, names: Iterable[str], assignor: str | None = None) -> int:
        """Return a hash of the ids, partitions and racks of the topics that exist; 0 for none.

        The assignor in the config of the group is a part of it. So the next coordinator of the
        group finds that it has changed. Kafka uses another hash. A group compares only hashes of
        the same broker software.
        """
        return _hash(self._digest_all(names), assignor)

    def _digest_all(self, names: Iterable[str]) -> bytes:
        digests = [self._digest(name) for name in sorted(names) if self.topic(name) is not None]
        return _digest_of(b"".join(digests)) if digests else b""

    def _digest(self, name: str) -> bytes:
        topic = self.topic(name)
        assert topic is not None
        known = self._digests.get(name)
        if known is not None and known[0] == topic:
            return known[1]
        text = repr(
            (topic.topic_id, name, topic.partition_count, [sorted(racks) for racks in topic.racks])
        )
        digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
        self._digests[name] = (topic, digest)
        return digest

    def differs_only_by_assignor(
        self,
        metadata_hash: int,
        names: Iterable[str],
        group_id: str,
        settings: ConsumerGroupSettings,
    ) -> bool:
        """True if a hash is that of the same topics with any or no assignor in the config."""
        topics = self._digest_all(names)
        config = self._configs.get(group_id)
        former = None if config is None else config.assignor  # the broker may have lost it
        return any(
            _hash(topics, assignor) == metadata_hash
            for assignor in (None, former, *settings.assignors)
        )

    # Settings of a group: its config within the broker's limits, or the broker's default.

    def session_timeout_ms(self, group_id: str, settings: ConsumerGroupSettings) -> int:
        """Return the session timeout of the members of a group."""
        config = self._configs.get(group_id)
        if config is None or (value := config.session_timeout_ms) is None:
            return settings.session_timeout_ms
        return min(max(value, settings.session_timeout_min_ms), settings.session_timeout_max_ms)

    def heartbeat_times_ms(self, group_id: str, settings: ConsumerGroupSettings) -> tuple[int, int]:
        """Return the session timeout and the heartbeat interval of the members of a group."""
        if group_id not in self._configs:
            return settings.session_timeout_ms, settings.heartbeat_interval_ms
        return (
            self.session_timeout_ms(group_id, settings),
            self.heartbeat_interval_ms(group_id, settings),
        )

    def heartbeat_interval_ms(self, group_id: str, settings: ConsumerGroupSettings) -> int:
        """Return the heartbeat interval of the members of a group."""
        config = self._configs.get(group_id)
        if config is None or (value := config.heartbeat_interval_ms) is None:
            return settings.heartbeat_interval_ms
        return min(
            max(value, settings.heartbeat_interval_min_ms), settings.heartbeat_interval_max_ms
        )

    def assignment_interval_ms(self, group_id: str, settings: ConsumerGroupSettings) -> int:
        """Return the least time between two target assignments of a group."""
        config = self._configs.get(group_id)
        if config is None or (value := config.assignment_interval_ms) is None:
            altered = self._assignment_interval_ms
            return settings.assignment_interval_ms if altered is None else altered
        return min(
            max(value, settings.assignment_interval_min_ms), settings.assignment_interval_max_ms
        )

    def assignor(self, group_id: str, settings: ConsumerGroupSettings) -> str | None:
        """Return the assignor in the config of a group; None if the broker does not have it."""
        config = self._configs.get(group_id)
        if config is None or config.assignor not in settings.assignors:
            return None
        return config.assignor


def _digest_of(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=8).digest()


def _hash(topics: bytes, assignor: str | None) -> int:
    """Return the hash of the digest of the topics, with the assignor in the config of the group."""
    if topics and assignor is not None:
        topics = _digest_of(topics + assignor.encode())
    return int.from_bytes(topics, "big", signed=True)
