"""One streaming query's source: asks brokers what its planner has to know, on a loop of its own.

Spark's calls come one after the other, and `Stream.latest` comes only when the batch that ended in
``start`` is written and none is under way. That is the moment at which everything happens that must
not happen within a batch: offsets are committed, partitions are given up, and new ones are taken.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from partage.client.cluster import Cluster
from partage.client.errors import ClientError, RecordsUnavailableError
from partage.client.metadata import TopicPartition
from partage.client.offsets import EARLIEST, LATEST
from partage.spark.options import ReadOptions
from partage.spark.planning import OffsetRange, split
from partage.spark.stream.holding import Everything, Holding, Share, Tenures
from partage.spark.stream.offset import (
    BadCheckpoint,
    StreamOffset,
    Whose,
    check_whose,
    nested,
    read,
    written,
)
from partage.spark.stream.planner import Planner
from partage.spark.stream.sharing import Pace
from partage.spark.stream.topics import Topics

log = logging.getLogger(__name__)

#: How long a query that begins waits for its place in the group, and, if it is to end by itself,
#: for partitions.
_JOIN_PATIENCE_S: Final = 30.0
_HANDOVER_PATIENCE_S: Final = 10.0
#: A query looks for records this often, the longer it is idle the less often, and less often too
#: where looking takes long.
_LOOK_EVERY_S: Final = 0.05
_LOOK_SELDOM_S: Final = 0.25
_LOOK_GROWTH: Final = 1.2
_LOOK_SHARE: Final = 20
_GIVE_UP_ATTEMPTS: Final = 3
_TENDED_EVERY_S: Final = 1.0

Ends = dict[TopicPartition, int]


class Stream:
    """The source of one query, from its first call to `stop`. To be used on its loop."""

    def __init__(self, cluster: Cluster, options: ReadOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._group = options.kafka.group
        self._planner = Planner()
        self._topics = Topics(cluster, options)
        self._holding: Holding | None = None
        self._opening = asyncio.Lock()
        self._targets: Ends | None = None
        self._ends: Ends = {}
        self._refused = 0
        self._calm_s = _LOOK_EVERY_S
        self._boundary = asyncio.Lock()
        #: The end of the last batch while none is under way.
        self._idle_at: StreamOffset | None = None
        self._under_way: StreamOffset | None = None
        self._tending: asyncio.Task[None] | None = None

    # What Spark asks.

    async def prepare_available_now(self) -> None:
        """Read to where the topics end now, and no further. Waits until there is a share."""
        holding = await self._open()
        self._targets = await self._topics.find(await self._topics.wanted(), LATEST)
        if not await _until(holding, bool, _HANDOVER_PATIENCE_S):
            log.warning("the query has no partitions to read: other members own all of them")

    async def latest(self, kept: dict[str, Any], pace: Pace) -> dict[str, Any]:
        """The end of the next batch, or ``kept`` itself if there is to be none for now.

        Raises:
            BadCheckpoint: the offsets that Spark has kept are of another cluster, group or topic.
            RecordsUnavailableError, TopicGone: records are gone, unless failOnDataLoss is false.
            MemberFailedError: the group does not take this query, or not any more.
            ClientError: the brokers do not answer.
        """
        is_first = self._holding is None
        holding = await self._open()
        async with self._boundary:
            start = await self._topics.start(self._read(kept))
            if is_first:  # Spark runs a first batch in any case: let there be something in it
                await _until(holding, lambda _: holding.is_in, _JOIN_PATIENCE_S)
            end = await self._next(holding, start, pace)
            self._idle_at, self._under_way = (start, None) if end is None else (None, end)
        return kept if end is None else written(end)

    async def _next(self, holding: Holding, start: StreamOffset, pace: Pace) -> StreamOffset | None:
        """The next batch, None if there is nothing for one before the wait is over."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._patience_s
        while True:
            began_s = loop.time()
            await self._at_boundary(holding, start)
            ends = await self._look()
            now_ms = int(loop.time() * 1000)
            if self._is_due(ends, pace, now_ms):
                await self._pass_over_gone()
                self._planner.holds(await holding.tenures())
                if self._is_due(ends, pace, now_ms):
                    self._calm_s = _LOOK_EVERY_S
                    whose = self._whose(holding)
                    marks = self._topics.marks
                    return self._planner.plan(ends, pace, now_ms, whose, marks)
            left_s = deadline_s - loop.time()
            if left_s <= 0 or (self._targets is not None and holding.is_settled):
                return None
            wait_s = max(self._calm_s, _LOOK_SHARE * (loop.time() - began_s))
            self._calm_s = min(self._calm_s * _LOOK_GROWTH, _LOOK_SELDOM_S)
            await holding.change(min(wait_s, left_s))

    @property
    def _patience_s(self) -> float:
        """How long to wait: for records, or for partitions where the query is to end."""
        if self._targets is not None:
            return _HANDOVER_PATIENCE_S
        return self._options.kafka.fetch.max_wait_ms / 1000

    async def partitions(self, kept: Mapping[str, Any]) -> list[OffsetRange]:
        """What the batch that ends in ``kept`` reads: the same whenever it is asked for."""
        await self._open()
        end = self._read(kept)
        self._idle_at, self._under_way = None, end
        return split(
            end.to_read,
            self._options.partitions_min,
            self._options.records_per_partition_max,
        )

    def report(self) -> dict[str, Any] | None:
        """Where the topics end, for a query's progress; from memory."""
        if self._holding is None or not self._ends:
            return None
        member, generation = self._holding.identity
        lag = sum(self._planner.available(self._ends).values())
        ends = nested(self._ends)
        return {"ends": ends, "generation": generation, "lag": lag, "member": member}

    async def stop(self, *, leaves: bool = True) -> None:
        """Leave the group, or vanish from it. What is under way is not committed."""
        if self._tending is not None:
            self._tending.cancel()
        if self._holding is not None:
            await self._holding.stop(leaves=leaves)

    # Beginning.

    async def _open(self) -> Holding:
        async with self._opening:
            if self._holding is None:
                await self._topics.begin()
                if self._group.group_id is None:
                    holding: Holding = Everything(self._topics.wanted)
                else:
                    holding = Share(self._cluster, self._options.wanted, self._group)
                await holding.begin()
                self._holding = holding
                self._tending = asyncio.get_running_loop().create_task(self._tend(holding))
            return self._holding

    def _read(self, kept: Mapping[str, Any]) -> StreamOffset:
        offset = read(kept)
        check_whose(offset, self._cluster.cluster_id, self._group.group_id)
        return offset

    def _whose(self, holding: Holding) -> Whose:
        member, generation = holding.identity
        return Whose(
            cluster=self._cluster.cluster_id,
            servers=self._options.kafka.servers,
            group=self._group.group_id,
            member=member,
            generation=generation,
            instance=self._group.instance_id,
        )

    # No batch is under way.

    async def _at_boundary(self, holding: Holding, start: StreamOffset) -> None:
        """Commit what is done, give up what others wait for, take over what is new."""
        self._planner.done(start)
        self._planner.holds(holding.owned)
        giving = holding.to_give_up
        is_committed = await self._commit(holding)
        if giving and (is_committed or self._refused >= _GIVE_UP_ATTEMPTS):
            holding.give_up()
        self._planner.holds(await holding.tenures())
        if await self._place(holding):
            await self._commit(holding)

    async def _tend(self, holding: Holding) -> None:
        """Between two triggers without a batch, let nobody wait for the next one."""
        while True:
            await holding.change(_TENDED_EVERY_S)
            if not holding.to_give_up:
                continue
            try:
                await self._see_whether_done(holding)
                async with self._boundary:
                    if self._idle_at is not None:
                        # A query that begins again may come here before Spark asks for more.
                        start = await self._topics.start(self._idle_at)
                        await self._at_boundary(holding, start)
            except (
                ClientError,
                BadCheckpoint,
            ) as error:
                # If it stays so the next trigger will raise it.
                log.info("could not serve the group while idle, will retry error=%s", error)

    async def _see_whether_done(self, holding: Holding) -> None:
        """A batch that the driver's listener has committed is over, whenever the next one is."""
        end = self._under_way
        if end is None or not end.to_read:
            return
        has = await holding.committed([partition for partition, _, _ in end.to_read])
        if end is self._under_way and all(has.get(p, -1) >= last for p, _, last in end.to_read):
            self._idle_at, self._under_way = end, None

    async def _commit(self, holding: Holding) -> bool:
        """Whether the group knows all that is done."""
        due = self._planner.due()
        if due and not await holding.commit(due):
            self._refused += 1
            return False
        self._planner.committed(due)
        self._refused = 0
        return True

    async def _place(self, holding: Holding) -> bool:
        """Find out where to begin with what is new; whether anything is.

        Where that is neither committed nor in the checkpoint it is committed at once: were it
        looked for again by the next owner, what came in between would be left out.
        """
        new = self._planner.unplaced
        if not new:
            return False
        committed = await holding.committed(new)
        unknown = [p for p in new if p not in committed and not self._planner.is_known(p)]
        otherwise = await self._topics.beginnings(unknown)
        for partition in new:
            at = committed.get(partition)
            if at is not None or partition in otherwise or self._planner.is_known(partition):
                self._planner.place(partition, at, otherwise.get(partition, 0))
        return True

    # What there is to read.

    async def _look(self) -> Ends:
        """Where what is held ends; under AvailableNow, where it ended when the query began."""
        self._ends = await self._topics.find(sorted(self._planner.positions), LATEST)
        if self._targets is None:
            return self._ends
        targets = self._targets
        return {p: min(end, targets[p]) for p, end in self._ends.items() if p in targets}

    def _is_due(self, ends: Ends, pace: Pace, now_ms: int) -> bool:
        return bool(self._beyond()) or self._planner.is_due(ends, pace, now_ms)

    def _beyond(self) -> list[TopicPartition]:
        """What is done further than it goes: it was cut, or made anew."""
        return [p for p, at in self._planner.positions.items() if at > self._ends.get(p, at)]

    async def _pass_over_gone(self) -> None:
        """Find records that are gone before they were read. Raises, or goes on behind them."""
        anew = await self._topics.refresh()
        positions = self._planner.positions
        earliest = await self._topics.find(sorted(positions), EARLIEST)
        if self._beyond():  # a new leader may not know yet how far it goes
            await asyncio.sleep(self._options.offset_retry_interval_ms / 1000)
            await self._look()
        for partition, at in positions.items():
            first, last = earliest.get(partition), self._ends.get(partition)
            if first is None or last is None:
                continue
            if partition.topic in anew:
                self._planner.moved(partition, first)
            elif at < first:
                self._topics.gone(RecordsUnavailableError(partition, at, first, last))
                self._planner.moved(partition, first)
            elif at > last:
                self._topics.gone(RecordsUnavailableError(partition, at, first, last))
                self._planner.moved(partition, last)


async def _until(holding: Holding, is_so: Callable[[Tenures], bool], patience_s: float) -> bool:
    """Wait until something is so of what is held; whether it is. Raises what ends the query."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + patience_s
    while not is_so(await holding.tenures()):
        left_s = deadline_s - loop.time()
        if left_s <= 0:
            return False
        await holding.change(min(left_s, 0.2))
    return True
