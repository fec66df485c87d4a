"""The offsets that open transactions have committed, until the transactions end (KIP-98, KIP-447).

A commit takes effect with the position of its record in the log, not of the marker: an offset that
was committed after it stays. So a later commit or deletion of the same partition supersedes a
pending offset.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from partage.coordinator.records import OffsetRecord
from partage.model.topic_partition import TopicPartition

_Key = tuple[str, str, int]  # group, topic, partition


class _PendingOffset(msgspec.Struct):
    record: OffsetRecord
    position: int  # counts the pending offsets of the shard
    is_superseded: bool = False


class PendingOffsets:
    """The pending offsets of a shard, by producer."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[_Key, _PendingOffset]] = {}
        # group -> topic and partition -> the producers with a pending offset for it
        self._producers: dict[str, dict[TopicPartition, set[int]]] = {}
        self._position = 0

    def add(self, producer_id: int, record: OffsetRecord) -> None:
        """Add an offset; it replaces an earlier one of the same transaction."""
        self._position += 1
        key = record.group_id, record.topic, record.partition
        self._by_producer.setdefault(producer_id, {})[key] = _PendingOffset(record, self._position)
        of_group = self._producers.setdefault(record.group_id, {})
        of_group.setdefault(TopicPartition(record.topic, record.partition), set()).add(producer_id)

    def supersede(self, group_id: str, topic: str, partition: int) -> None:
        """Note that an offset was committed without a transaction: it is the later one."""
        if group_id in self._producers:
            self._supersede((group_id, topic, partition), self._position)

    def _supersede(self, key: _Key, position: int) -> None:
        group_id, topic, number = key
        partition = TopicPartition(topic, number)
        for producer_id in self._producers.get(group_id, {}).get(partition, ()):
            pending = self._by_producer[producer_id][key]
            if pending.position <= position:
                pending.is_superseded = True

    def discard(self, group_id: str, topic: str, partition: int) -> None:
        """Drop the pending offsets of a partition whose offset was deleted."""
        of_group = self._producers.get(group_id)
        if of_group is None:
            return
        for producer_id in list(of_group.get(TopicPartition(topic, partition), ())):
            self._remove(producer_id, (group_id, topic, partition))

    def discard_group(self, group_id: str) -> None:
        """Drop the pending offsets of a group that was removed."""
        for topic, partition in list(self._producers.get(group_id, ())):
            self.discard(group_id, topic, partition)

    def complete(self, producer_id: int, *, is_commit: bool) -> list[OffsetRecord]:
        """End a producer's transaction.

        Returns:
            The offsets that take effect; none after an abort.
        """
        committed = []
        for key, pending in list(self._by_producer.get(producer_id, {}).items()):
            self._remove(producer_id, key)
            if is_commit and not pending.is_superseded:
                committed.append(pending.record)
                self._supersede(key, pending.position)
        return committed

    def _remove(self, producer_id: int, key: _Key) -> None:
        group_id, topic, number = key
        partition = TopicPartition(topic, number)
        of_producer = self._by_producer[producer_id]
        del of_producer[key]
        if not of_producer:
            del self._by_producer[producer_id]
        of_group = self._producers[group_id]
        producers = of_group[partition]
        producers.discard(producer_id)
        if not producers:
            del of_group[partition]
            if not of_group:
                del self._producers[group_id]

    def partitions(self, group_id: str) -> frozenset[TopicPartition]:
        """Return the partitions for which a transaction has a pending offset of the group."""
        return frozenset(self._producers.get(group_id, ()))

    def groups(self) -> list[str]:
        """Return the groups with pending offsets."""
        return list(self._producers)

    def entries(self) -> Iterator[tuple[int, OffsetRecord, bool]]:
        """Yield producer id, offset, and whether the offset was superseded, for checks."""
        for producer_id, of_producer in self._by_producer.items():
            for pending in of_producer.values():
                yield producer_id, pending.record, pending.is_superseded
