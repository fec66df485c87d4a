"""The partitions that the processes of a world own over time, as their requests show it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from partage.broker.broker import Broker
from partage.lab.whatif.handovers import ReaderChange
from partage.model.topic_partition import TopicPartition
from partage.testing.world.request_recorder import RequestRecorder
from partage.testing.world.virtual_loop import VirtualLoop
from partage.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from partage.wire.apis.join_group import JOIN_GROUP


class OwnershipTimeline(RequestRecorder):
    """Records the partitions that each process owns in one group.

    Attributes:
        timeline: the changes, in order.
        joined_groups: the groups that each process asked to join, by the name of the process.
        broker: the broker of the world, once it has started.
    """

    def __init__(self, loop: VirtualLoop, group_id: str) -> None:
        super().__init__(loop)
        self.timeline: list[ReaderChange] = []
        self.joined_groups: dict[str, list[str]] = {}
        self.broker: Broker | None = None
        self._group_id = group_id
        self._current: dict[str, frozenset[TopicPartition]] = {}

    def observe(self, broker: Broker) -> None:
        """Record the requests to the broker."""
        self.broker = broker
        super().observe(broker)

    def owned_by(self, process: str) -> frozenset[TopicPartition]:
        """Return the partitions that a process owns now."""
        return self._current.get(process, frozenset())

    def on_process_end(self, process: str) -> None:
        """End the ownership of a process."""
        super().on_process_end(process)
        self._record_change(process)

    def _on_group_request(self, key: int, process: str, message: Any, topic_name: Any) -> None:
        if key in (JOIN_GROUP.key, CONSUMER_GROUP_HEARTBEAT.key):
            groups = self.joined_groups.setdefault(process, [])
            if message.group_id not in groups:
                groups.append(message.group_id)
        super()._on_group_request(key, process, message, topic_name)

    def _own(self, member: tuple[str, str, str], partitions: Iterable[TopicPartition]) -> None:
        super()._own(member, partitions)
        self._record_change(member[0])

    def _release(self, member: tuple[str, str, str], kept: Iterable[TopicPartition] = ()) -> None:
        super()._release(member, kept)
        self._record_change(member[0])

    def _record_change(self, process: str) -> None:
        owned = frozenset(
            partition
            for (owner, group_id, _), partitions in self._owned.items()
            if owner == process and group_id == self._group_id
            for partition in partitions
        )
        if owned != self.owned_by(process):
            self._current[process] = owned
            at_ms = round(self._loop.elapsed_s * 1000)
            self.timeline.append(ReaderChange(at_ms, process, owned))
