"""The topics of the members that speak the consumer protocol: names, ids and partition counts.

They exist only in the catalogue of topics: these members read no records.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from partage.coordinator.consumer_group.events import TopicImage, TopicsChanged

#: The topics of a new world, with their partition counts.
FIRST_TOPICS: Final = {"ka": 3, "kb": 2, "lc": 2}
#: The names that topics of a world can have.
TOPIC_NAMES: Final = (*FIRST_TOPICS, "kd")


class ConsumerTopics:
    """The newest catalogue. Brokers learn of each version after a delay."""

    def __init__(self) -> None:
        #: Called after each change.
        self.on_changed: Callable[[], None] = lambda: None
        self.version = 1
        self._created = 0
        self._names: dict[bytes, str] = {}  # of deleted topics too
        self.images: dict[str, TopicImage] = {}
        for name, count in FIRST_TOPICS.items():
            self._add(name, count)

    def _add(self, name: str, count: int) -> None:
        self._created += 1
        topic_id = blake2b(f"{name} {self._created}".encode(), digest_size=16).digest()
        self._names[topic_id] = name
        self._set(name, TopicImage(topic_id=topic_id, name=name, partition_count=count))

    def _set(self, name: str, image: TopicImage | None) -> None:
        images = {each: known for each, known in self.images.items() if each != name}
        if image is not None:
            images[name] = image
        self.images = images

    def _publish(self) -> None:
        self.version += 1
        self.on_changed()

    def to_event(self, at_ms: int) -> TopicsChanged:
        """Return the event that reports the newest version to a shard."""
        return TopicsChanged(at_ms=at_ms, topics=self.images, version=self.version)

    def has_partition(self, topic: str, index: int) -> bool:
        """Return True if a partition exists."""
        image = self.images.get(topic)
        return image is not None and 0 <= index < image.partition_count

    def name_of(self, topic_id: bytes) -> str:
        """Return the name of a topic, which may be deleted."""
        return self._names[topic_id]

    def create(self, name: str, count: int) -> bool:
        """Create a topic. Return False if it exists."""
        if name in self.images:
            return False
        self._add(name, count)
        self._publish()
        return True

    def grow(self, name: str) -> bool:
        """Add a partition to a topic. Return False if the topic does not exist."""
        image = self.images.get(name)
        if image is None:
            return False
        count = image.partition_count + 1
        self._set(name, TopicImage(topic_id=image.topic_id, name=name, partition_count=count))
        self._publish()
        return True

    def delete(self, name: str) -> bool:
        """Delete a topic. Return False if it does not exist."""
        if name not in self.images:
            return False
        self._set(name, None)
        self._publish()
        return True
