"""Tells now and then how far groups are behind, to whoever reads ``__group_events``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Final

from partage.broker.clock import Clock
from partage.broker.hosted import Hosted
from partage.broker.shard_host import ShardHost
from partage.coordinator.commit import GroupOffsets
from partage.store.group_events import Lag

log = logging.getLogger(__name__)

_PARTITIONS_A_TURN: Final = 2_000
_PAUSE_S: Final = 0.005


class LagSampling:
    """Goes round all groups that have committed something, every ``interval_ms`` if that is not 0.

    A group is told of when its lag has changed. The coordinator's own topics do not count: the
    events themselves would, and each make another.
    """

    def __init__(
        self, hosts: Sequence[ShardHost], hosted: Hosted, clock: Clock, interval_ms: int
    ) -> None:
        self._hosts = hosts
        self._hosted = hosted
        self._clock = clock
        self._interval_s = interval_ms / 1000
        self._told: dict[str, dict[str, dict[int, int]]] = {}  # the last of each group
        self._asked = 0  # since the last pause
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
                await self.go_round()
            except Exception:  # a fault of ours; groups go on without it
                log.exception("looking for the lag of groups failed")

    async def go_round(self) -> None:
        """Tell the lag of every group where it has changed."""
        seen = set[str]()
        for host in self._hosts:
            shard = host.shard
            for group_id in [] if shard is None else list(shard.offsets):
                # The shard may be another one, and the group gone, after each pause.
                offsets = None if host.shard is None else host.shard.offsets.get(group_id)
                if not offsets:
                    continue
                seen.add(group_id)
                await self._tell(host, group_id, offsets)
        for group_id in self._told.keys() - seen:
            del self._told[group_id]

    async def _tell(self, host: ShardHost, group_id: str, offsets: GroupOffsets) -> None:
        lag = await self._lag(offsets)
        if not lag or self._told.get(group_id) == lag:
            return
        self._told[group_id] = lag
        group = None if host.shard is None else host.shard.groups.get(group_id)
        host.publish(
            Lag(
                at_ms=self._clock.now_ms(),
                group_id=group_id,
                generation=0 if group is None else group.generation,
                lag=lag,
            )
        )

    async def _lag(self, offsets: GroupOffsets) -> dict[str, dict[int, int]]:
        lag: dict[str, dict[int, int]] = {}
        for place in list(offsets):
            self._asked += 1
            if self._asked >= _PARTITIONS_A_TURN:
                self._asked = 0
                await asyncio.sleep(_PAUSE_S)
            topic, number = place
            committed = offsets.get(place)  # which may have gone meanwhile
            partition = self._hosted.partition(topic, number)
            if partition and committed and not self._hosted.is_internal(topic):
                behind = partition.log.high_watermark - committed.offset
                lag.setdefault(topic, {})[number] = max(behind, 0)
        return lag
