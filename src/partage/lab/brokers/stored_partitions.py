"""The partitions of a broker, as the end of a world reads them, and their files."""

from __future__ import annotations

from typing import Final

from partage.broker.broker import Broker
from partage.broker.topics.partition import Partition
from partage.lab.environment.disk import CrashDisk
from partage.lab.history import OutputReread, PartitionReread
from partage.lab.recorded_batches import decode_batches
from partage.log.catalogue.topic_catalogue import TopicCatalogue
from partage.log.checkpoints import CheckpointFile
from partage.log.errors import DamagedFileError
from partage.log.layout import LOG_SUFFIX, offset_from_name, partition_directory
from partage.log.results import Refusal
from partage.model.topic_partition import TopicPartition
from partage.wire.records.decoder import decode_records

_EVERYTHING: Final = 1 << 40


def acknowledged_lengths(disk: CrashDisk, topic: str) -> dict[str, int]:
    """Return the log files of a topic's first partition on the disk of a broker that is down, with
    their acknowledged lengths according to the checkpoints.
    """
    copy = disk.copy()  # reading the catalogue completes deletions
    copy.crash_after = None
    copy.io_errors.clear()
    directory = partition_directory(topic, 0)
    try:
        found = TopicCatalogue.load(copy).get(topic)
        if found is None:
            return {}
        marker = CheckpointFile.load(copy, [(found.topic_id, 0)]).get(found.topic_id, 0)
    except (OSError, DamagedFileError):
        return {}
    if marker is None:
        return {}
    names = [name for name in disk.names(directory) if name.endswith(LOG_SUFFIX)]
    bases = {name: offset_from_name(name, LOG_SUFFIX) for name in names}
    return {
        f"{directory}/{name}": marker.position
        if base == marker.base_offset
        else disk.size(f"{directory}/{name}")
        for name, base in bases.items()
        if base is not None and base <= marker.base_offset
    }


class StoredPartitions:
    """The partitions of a running broker.

    Args:
        broker: The broker.
        disk: Its disk.
    """

    def __init__(self, broker: Broker, disk: CrashDisk) -> None:
        self._broker = broker
        self._disk = disk

    @property
    def partitions(self) -> dict[TopicPartition, Partition]:
        """All partitions on the broker."""
        return {
            TopicPartition(topic.name, index): partition
            for topic in self._broker.log_manager.topics()
            for index, partition in topic.partitions.items()
        }

    def reread_partition(
        self, place: TopicPartition, partition: Partition, now_ms: int
    ) -> PartitionReread:
        """Return all records of a partition, read from the disk."""
        log = partition.log
        first, end = log.log_start_offset, log.high_watermark
        records = []
        if first < end:
            content = self._read(partition)
            records = [(each[0], each[3] or b"") for each in decode_records(content, first)]
        return PartitionReread(
            at_ms=now_ms, partition=place, first=first, end=end, records=tuple(records)
        )

    def reread_output(
        self, place: TopicPartition, partition: Partition, now_ms: int
    ) -> OutputReread:
        """Return all batches of a partition of transactional producers, read from the disk."""
        batches = tuple(decode_batches(place, self._read(partition), now_ms))
        return OutputReread(at_ms=now_ms, partition=place, batches=batches)

    def _read(self, partition: Partition) -> bytes:
        slices = partition.log.locate(partition.log.log_start_offset, _EVERYTHING)
        assert not isinstance(slices, Refusal), slices.message
        return b"".join(self._disk.read(part.path, part.position, part.length) for part in slices)
