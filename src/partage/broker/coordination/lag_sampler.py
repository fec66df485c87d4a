"""Periodic samples of group lag for ``__group_events``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Protocol

from partage.broker.clock import Clock
from partage.broker.coordination.shard_host import ShardHost
from partage.broker.topics.log_manager import LogManager
from partage.coordinator.commit import GroupOffsets
from partage.model.topic_partition import TopicPartition
from partage.store.group_events import LagSample

log = logging.getLogger(__name__)

_PARTITIONS_PER_TURN: Final = 2_000
_PAUSE_S: Final = 0.005
#: Partitions of other brokers to ask for in one sample; the lag of others is left out.
REMOTE_PARTITIONS_MAX: Final = 50_000

#: Topic and partition index.


class RemoteEndOffsets(Protocol):
    """End offsets of partitions that other brokers store."""

    async def fetch(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the end offsets (the next offset to be written) that are available in time."""


class LagSampler:
    """Samples the lag of all groups with committed offsets, every ``interval_ms`` (0 disables it).

    A sample is published when the lag of a group has changed. Internal topics are excluded, because
    each event would cause another one. End offsets of remote partitions are requested once for all
    groups; partitions without an end offset are left out.

    Args:
        hosts: the hosts of all shards.
        log_manager: the topics of this broker.
        clock: the broker's clock.
        interval_ms: time between two samples.
        elsewhere: end offsets of remote partitions, in a cluster.
    """

    def __init__(
        self,
        hosts: Sequence[ShardHost],
        log_manager: LogManager,
        clock: Clock,
        interval_ms: int,
        elsewhere: RemoteEndOffsets | None = None,
    ) -> None:
        self._hosts = hosts
        self._log_manager = log_manager
        self._clock = clock
        self._interval_s = interval_ms / 1000
        self._remote_end_offsets = elsewhere
        self._remote_ends: Mapping[TopicPartition, int] = {}  # as of this sample
        self._published: dict[str, dict[str, dict[int, int]]] = {}  # last lag by group
        self._looked_up = 0  # since the last pause
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start; the first sample is after one interval."""
        if self._interval_s:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.sample_once()
            except Exception:  # a bug; groups continue without samples
                log.exception("sampling of group lag failed")

    async def sample_once(self) -> None:
        """Publish the lag of each group in which it has changed."""
        if self._remote_end_offsets is not None:
            self._remote_ends = await self._remote_end_offsets.fetch(
                await self._remote_partitions()
            )
        seen = set[str]()
        for host, group_id, offsets in self._groups():
            seen.add(group_id)
            await self._publish(host, group_id, offsets)
        for group_id in self._published.keys() - seen:
            del self._published[group_id]

    def _groups(self) -> Iterator[tuple[ShardHost, str, GroupOffsets]]:
        """Yield groups with committed offsets. The caller may pause between two."""
        for host in self._hosts:
            shard = host.shard
            for group_id in [] if shard is None else list(shard.offsets):
                # After a pause the shard may be another object, and the group may be deleted.
                offsets = None if host.shard is None else host.shard.offsets.get(group_id)
                if offsets:
                    yield host, group_id, offsets

    async def _remote_partitions(self) -> Collection[TopicPartition]:
        partitions = dict[TopicPartition, None]()
        for _, _, offsets in self._groups():
            for place in list(offsets):
                await self._yield_periodically()
                partition = TopicPartition(*place)
                if self._is_remote(partition):
                    partitions[partition] = None
                if len(partitions) >= REMOTE_PARTITIONS_MAX:
                    return partitions
        return partitions

    def _is_remote(self, place: TopicPartition) -> bool:
        is_here = self._log_manager.partition(*place) is not None
        is_ours = self._log_manager.is_internal(place[0])
        return not is_here and not is_ours and self._log_manager.has_partition(*place)

    async def _publish(self, host: ShardHost, group_id: str, offsets: GroupOffsets) -> None:
        shard = host.shard
        lag = await self._lag(offsets)
        if not lag or self._published.get(group_id) == lag:
            return
        if shard is None or host.shard is not shard or not host.is_authoritative:
            return  # another broker may own the shard; the next sample tries again
        self._published[group_id] = lag
        group = shard.groups.get(group_id)
        host.publish(
            LagSample(
                at_ms=self._clock.now_ms(),
                group_id=group_id,
                generation=0 if group is None else group.generation,
                lag=lag,
            )
        )

    async def _lag(self, offsets: GroupOffsets) -> dict[str, dict[int, int]]:
        lag: dict[str, dict[int, int]] = {}
        for place in list(offsets):
            await self._yield_periodically()
            topic, number = place
            committed = offsets.get(place)  # may be deleted since
            end = self._end_offset(TopicPartition(topic, number))
            if end is not None and committed and not self._log_manager.is_internal(topic):
                lag.setdefault(topic, {})[number] = max(end - committed.offset, 0)
        return lag

    def _end_offset(self, place: TopicPartition) -> int | None:
        partition = self._log_manager.partition(*place)
        return self._remote_ends.get(place) if partition is None else partition.log.high_watermark

    async def _yield_periodically(self) -> None:
        self._looked_up += 1
        if self._looked_up >= _PARTITIONS_PER_TURN:
            self._looked_up = 0
            await asyncio.sleep(_PAUSE_S)
