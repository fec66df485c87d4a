"""Acknowledged commits of offsets, which no later answer of a coordinator may contradict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from partage.model.topic_partition import TopicPartition
from partage.wire.apis.delete_groups import DELETE_GROUPS
from partage.wire.apis.delete_topics import DELETE_TOPICS
from partage.wire.apis.offset_delete import OFFSET_DELETE
from partage.wire.apis.txn_offset_commit import TXN_OFFSET_COMMIT

_Key = tuple[str, TopicPartition]

_DELETING: Final = frozenset({DELETE_GROUPS.key, DELETE_TOPICS.key, OFFSET_DELETE.key})


class _Commit(msgspec.Struct, frozen=True):
    """An acknowledged commit; ``number`` grows with each one."""

    number: int
    offset: int
    at_s: float


class AcknowledgedCommits:
    """The last acknowledged offset of each group and partition.

    A coordinator must know it, as long as no client deletes it. Groups that commit in transactions
    are not followed, because a transaction takes effect at an unknown time.

    Args:
        now_s: returns the time in seconds.
        retention_s: how long coordinators keep offsets at least.
    """

    def __init__(self, now_s: Callable[[], float], retention_s: float) -> None:
        self._now_s, self._retention_s = now_s, retention_s
        self._last: dict[_Key, _Commit] = {}
        #: Requested offsets without an acknowledgement, which may be stored or not.
        self._open: dict[_Key, set[int]] = defaultdict(set)
        self._count = 0
        self._unknown_groups: set[str] = set()
        self._has_deleted = False

    def on_request(self, key: int, message: Any) -> None:
        """Note a request that changes offsets in another way."""
        if key == TXN_OFFSET_COMMIT.key:
            self._unknown_groups.add(message.group_id)
        elif key in _DELETING:
            self._has_deleted = True

    def on_commit(self, group: str, partition: TopicPartition, offset: int) -> None:
        """Note that a client wants to commit an offset."""
        self._open[group, partition].add(offset)

    def on_acknowledged(self, group: str, partition: TopicPartition, offset: int) -> None:
        """Note that a coordinator has acknowledged a commit."""
        self._count += 1
        self._last[group, partition] = _Commit(self._count, offset, self._now_s())
        self._open[group, partition].clear()

    @property
    def count(self) -> int:
        """The number of acknowledged commits so far."""
        return self._count

    def contradictions(
        self, group: str, found: Iterable[tuple[TopicPartition, int]], until: int
    ) -> Iterator[str]:
        """Yield descriptions of offsets that contradict an acknowledged commit.

        Args:
            group: the group.
            found: the offsets that a coordinator knows, -1 for none.
            until: only the commits up to this `count` must be known.
        """
        if group in self._unknown_groups:
            return
        for partition, offset in found:
            last = self._last.get((group, partition))
            is_open = offset in self._open[group, partition]
            if last is None or last.number > until or is_open or offset >= last.offset:
                continue
            is_old = self._now_s() - last.at_s >= self._retention_s
            if offset >= 0 or not (self._has_deleted or is_old):
                known = str(offset) if offset >= 0 else "none"
                yield (
                    f"the coordinator of group {group} acknowledged offset {last.offset} of "
                    f"{partition.topic}-{partition.partition}, and later knew {known}"
                )

    def followed(self) -> list[_Key]:
        """Return the groups and partitions with an acknowledged commit."""
        return list(self._last)


def fetched_offsets(
    request: Any, response: Any, topic_name: Callable[[bytes], str]
) -> Iterator[tuple[str, list[tuple[TopicPartition, int]]]]:
    """Yield the groups of an OffsetFetch response with their offsets, without errors."""
    groups = [(each.group_id, each.topics, each.error_code) for each in response.groups]
    if not groups:  # up to v7
        groups = [(request.group_id, response.topics, response.error_code)]
    for group, topics, error in groups:
        if not error:
            found = [
                (topic.name or topic_name(topic.topic_id), each)
                for topic in topics
                for each in topic.partitions
                if not each.error_code
            ]
            yield (
                group,
                [
                    (TopicPartition(name, e.partition_index), e.committed_offset)
                    for name, e in found
                ],
            )
