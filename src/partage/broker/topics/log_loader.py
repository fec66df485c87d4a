"""Opening this broker's partitions from its disk, in threads; what there is to open is decided in
`partage.broker.topics.log_manager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable

from partage.broker.clock import Clock
from partage.broker.topics.log_writer import LogWriter
from partage.broker.topics.partition import Partition
from partage.log.catalogue.topic_catalogue import TopicCatalogue, TopicDefinition
from partage.log.catalogue.topic_config import LogConfig
from partage.log.checkpoints import CheckpointFile
from partage.log.disk import Disk
from partage.log.layout import partition_directory
from partage.log.recovery.partition_recovery import open_partition
from partage.model.settings import BrokerSettings

log = logging.getLogger(__name__)


class LogLoader:
    """Opens partitions, and keeps the places of their markers.

    ``when_failed`` is called with topic and number of a partition whose writing failed.
    """

    def __init__(
        self,
        disk: Disk,
        writer: LogWriter,
        clock: Clock,
        settings: BrokerSettings,
        when_failed: Callable[[str, int], None],
    ) -> None:
        self._disk = disk
        self._writer = writer
        self._clock = clock
        self._settings = settings
        self._on_partition_failed = when_failed
        self._checkpoints = CheckpointFile()
        self._is_cancelled = False

    def cancel(self) -> None:
        """Open no more partitions: nobody waits for them. What is begun ends as after a crash."""
        self._is_cancelled = True

    def load_checkpoints(self, catalogue: TopicCatalogue) -> None:
        """Find the markers of the partitions that are held.

        Raises `DamagedFileError` and `OSError`.
        """
        me = self._settings.node_id
        held = [(topic.topic_id, index) for topic in catalogue for index in topic.partitions_on(me)]
        self._checkpoints = CheckpointFile.load(self._disk, held)

    def release_checkpoints(self, topic: TopicDefinition) -> None:
        """The topic is gone: others may have the places of its markers."""
        for index in topic.partitions_on(self._settings.node_id):
            self._checkpoints.release(topic.topic_id, index)

    def log_config(self, topic: TopicDefinition) -> LogConfig:
        """The configuration of a topic's partitions."""
        return LogConfig.from_configs(topic.configs, self._settings.topic_defaults)

    def open(self, topic: TopicDefinition, indexes: Iterable[int]) -> dict[int, Partition]:
        """Open partitions, by their numbers. Raises `DamagedLogError` and `OSError`."""
        config, there = self.log_config(topic), set(self._disk.names(""))
        opened = dict[int, Partition]()
        for index in indexes:
            if self._is_cancelled:
                raise OSError("the broker is stopping")
            opened[index] = self._open(topic, index, config, there)
        return opened

    def _open(
        self, topic: TopicDefinition, index: int, config: LogConfig, there: Container[str]
    ) -> Partition:
        name = partition_directory(topic.name, index)
        slot = self._checkpoints.slot(topic.topic_id, index)
        marker = self._checkpoints.get(topic.topic_id, index)
        opened = open_partition(
            self._disk,
            name,
            config,
            slot,
            marker,
            now_ms=self._clock.wall_ms(),
            cuts_nothing=marker is None and self._checkpoints.damaged_count > 0,
            has_directory=name in there,
        )
        for cut in opened.truncations:
            log.warning("%s", cut)
        if opened.scanned_bytes:
            log.info("recovered partition %s: scanned_bytes=%d", name, opened.scanned_bytes)
        return Partition(
            name, opened.log, self._writer, lambda: self._on_partition_failed(topic.name, index)
        )
