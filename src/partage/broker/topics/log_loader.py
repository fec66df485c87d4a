"""Opens the partitions of this broker from disk, in threads.

`partage.broker.topics.log_manager` decides which partitions to open.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable

from partage.broker.clock import Clock
from partage.broker.topics.log_writer import LogWriter
from partage.broker.topics.partition import Partition
from partage.broker.topics.recompressor import Recompressor
from partage.log.catalogue.topic_catalogue import TopicCatalogue, TopicDefinition
from partage.log.catalogue.topic_config import LogConfig
from partage.log.checkpoints import CheckpointFile
from partage.log.disk import Disk
from partage.log.layout import partition_directory
from partage.log.recovery.partition_recovery import open_partition
from partage.model.settings import BrokerSettings

log = logging.getLogger(__name__)


class LogLoader:
    """Opens partitions and manages their checkpoint slots.

    Args:
        disk: the data directory.
        writer: writes all logs.
        recompressor: recompresses produced batches.
        clock: the broker's clock.
        settings: the broker settings.
        when_failed: called with topic and index of a partition after a failed write.
    """

    def __init__(
        self,
        disk: Disk,
        writer: LogWriter,
        recompressor: Recompressor,
        clock: Clock,
        settings: BrokerSettings,
        when_failed: Callable[[str, int], None],
    ) -> None:
        self._disk = disk
        self._writer = writer
        self._recompressor = recompressor
        self._clock = clock
        self._settings = settings
        self._on_partition_failed = when_failed
        self._checkpoints = CheckpointFile()
        self._is_cancelled = False

    def cancel(self) -> None:
        """Stop opening partitions. Partitions that are being opened end as after a crash."""
        self._is_cancelled = True

    def use_settings(self, settings: BrokerSettings) -> None:
        """Use other settings from now on."""
        self._settings = settings

    def load_checkpoints(self, catalogue: TopicCatalogue) -> None:
        """Load the checkpoints of the local partitions.

        Raises:
            DamagedFileError: the checkpoint file is damaged.
            OSError: the disk fails.
        """
        me = self._settings.node_id
        held = [(topic.topic_id, index) for topic in catalogue for index in topic.partitions_on(me)]
        self._checkpoints = CheckpointFile.load(self._disk, held)

    def release_checkpoints(self, topic: TopicDefinition) -> None:
        """Release the checkpoint slots of a deleted topic."""
        for index in topic.partitions_on(self._settings.node_id):
            self._checkpoints.release(topic.topic_id, index)

    def log_config(self, topic: TopicDefinition) -> LogConfig:
        """Return the log configuration of a topic."""
        return LogConfig.from_configs(topic.configs, self._settings.topic_defaults)

    def open(self, topic: TopicDefinition, indexes: Iterable[int]) -> dict[int, Partition]:
        """Open partitions of a topic; return them by index.

        Raises:
            DamagedLogError: acknowledged bytes are missing or changed.
            OSError: the disk fails.
        """
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
            name,
            opened.log,
            self._writer,
            self._recompressor,
            lambda: self._on_partition_failed(topic.name, index),
        )
