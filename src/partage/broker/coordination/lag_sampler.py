"""Tells now and then how far groups are behind, to whoever reads ``__group_events``."""

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
#: Of so many partitions other brokers are asked in a round; the lag of more is not told.
REMOTE_PARTITIONS_MAX: Final = 50_000

#: Topic and number.


class RemoteEndOffsets(Protocol):
    """The partitions that other brokers hold."""

    async def fetch(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where these end: the offset after the last record, of those that can be had soon."""


class LagSampler:
    """Goes round all groups that have committed something, every ``interval_ms`` if that is not 0.

    A group is told of when its lag has changed. The coordinator's own topics do not count: the
    events themselves would, and each make another. Partitions that are ``elsewhere`` are asked for
    once a round for all groups; what is not heard of is left out.
    """

    def __init__(
        self,
        hosts: Sequence[ShardHost],
        hosted: LogManager,
        clock: Clock,
        interval_ms: int,
        elsewhere: RemoteEndOffsets | None = None,
    ) -> None:
        self._hosts = hosts
        self._log_manager = hosted
        self._clock = clock
        self._interval_s = interval_ms / 1000
        self._remote_end_offsets = elsewhere
        self._remote_ends: Mapping[
            TopicPartition, int
        ] = {}  # of partitions elsewhere, as of this round
        self._published: dict[str, dict[str, dict[int, int]]] = {}  # the last of each group
        self._looked_up = 0  # since the last pause
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, with a first round after one interval."""
        if self._interval_s:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.sample_once()
            except Exception:  # a fault of ours; groups go on without it
                log.exception("sampling of group lag failed")

    async def sample_once(self) -> None:
        """Tell the lag of every group where it has changed."""
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
        """Those that have committed something. Whoever takes them may pause between two."""
        for host in self._hosts:
            shard = host.shard
            for group_id in [] if shard is None else list(shard.offsets):
                # The shard may be another one, and the group gone, after each pause.
                offsets = None if host.shard is None else host.shard.offsets.get(group_id)
                if offsets:
                    yield host, group_id, offsets

    async def _remote_partitions(self) -> Collection[TopicPartition]:
        places = dict[TopicPartition, None]()
        for _, _, offsets in self._groups():
            for place in list(offsets):
                await self._yield_periodically()
                partition = TopicPartition(*place)
                if self._is_remote(partition):
                    places[partition] = None
                if len(places) >= REMOTE_PARTITIONS_MAX:
                    return places
        return places

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
            return  # it is somebody else's, or may be: the next round will see
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
            committed = offsets.get(place)  # which may have gone meanwhile
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
