"""The catalogue of topics as consumer groups need it, shared by all shards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from partage.broker.topics.log_manager import LogManager
from partage.coordinator.consumer_group.events import TopicImage, TopicsChanged
from partage.log.catalogue.topic_catalogue import TopicDefinition

_NO_RACKS: Final = frozenset[str]()


class TopicImages:
    """Images of all topics, replaced as a whole after each change.

    Several changes in one turn of the loop become one version. The version is published before the
    broker reads the next request: a client that has created a topic can subscribe to it at once.

    In a cluster, a partition has the rack of its broker. A broker that is away keeps its last known
    rack: a short outage must not start new target assignments.

    Args:
        log_manager: the topics of the broker.
        rack: the rack of a broker that hosts all partitions; None if it has none.
    """

    def __init__(self, log_manager: LogManager, rack: str | None) -> None:
        #: Called after each change.
        self.on_changed: Callable[[], None] = lambda: None
        self._log_manager = log_manager
        self._own_racks = _racks(rack)
        self._racks_by_broker: dict[int, frozenset[str]] = {}
        self._images: Mapping[str, TopicImage] = {
            each.name: self._image(each.topic) for each in log_manager.topics()
        }
        self._version = 1
        self._changed_names: set[str] = set()
        log_manager.on_topic_changed = self._on_topic_changed

    def names(self) -> list[str]:
        """Return the names of all topics, as in Kafka with the internal ones."""
        return list(self._images)

    @property
    def version(self) -> int:
        """The number of the current version."""
        return self._version

    def to_event(self, at_ms: int) -> TopicsChanged:
        """Return the event that reports the current version to a shard."""
        return TopicsChanged(at_ms=at_ms, topics=self._images, version=self._version)

    def update_racks(self, racks: Mapping[int, str | None]) -> None:
        """Take the racks of the live brokers of a cluster, by broker id."""
        known = self._racks_by_broker
        changed = {each for each in racks if known.get(each, _NO_RACKS) != _racks(racks[each])}
        if not changed:
            return
        known.update((each, _racks(racks[each])) for each in changed)
        for each in self._log_manager.topics():
            if not changed.isdisjoint(each.topic.brokers):
                self._on_topic_changed(each.name)

    def _image(self, topic: TopicDefinition) -> TopicImage:
        if topic.brokers:
            racks = tuple(self._racks_by_broker.get(each, _NO_RACKS) for each in topic.brokers)
        else:
            racks = (self._own_racks,) * topic.partition_count
        return TopicImage(
            topic_id=topic.topic_id,
            name=topic.name,
            partition_count=topic.partition_count,
            racks=racks if any(racks) else (),
        )

    def _on_topic_changed(self, name: str) -> None:
        if not self._changed_names:
            asyncio.get_running_loop().call_soon(self._publish)
        self._changed_names.add(name)

    def _publish(self) -> None:
        images = dict(self._images)
        for name in self._changed_names:
            topic = self._log_manager.topic(name)
            if topic is None:
                images.pop(name, None)
            else:
                images[name] = self._image(topic.topic)
        self._changed_names.clear()
        self._images = images
        self._version += 1
        self.on_changed()


def _racks(rack: str | None) -> frozenset[str]:
    """Return the racks of a partition with one replica."""
    return _NO_RACKS if rack is None else frozenset((rack,))
