"""What Spark calls of a streaming source, in a process of its own for each query.

Spark makes readers in several processes: planners, executors, and the query's *source process*,
where alone offsets are asked for. So a reader joins the group when it is first asked, not when it
is made, and travels to the executors without its stream.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from types import FrameType
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from partage.client.cluster import Cluster
from partage.client.loop_thread import LoopThread
from partage.spark.options import ReadOptions
from partage.spark.ranges import RangePartition, read_range
from partage.spark.stream.offset import INITIAL, written
from partage.spark.stream.sharing import Pace
from partage.spark.stream.stream import Stream

log = logging.getLogger(__name__)

#: Longer than a member takes to leave, and short enough for whoever waits for the query to end.
_STOP_PATIENCE_S: Final = 4.0
_CLOSING_S: Final = 0.01

Offset = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a query's share of the topics, batch after batch."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._running: Running | None = None

    def __getstate__(self) -> ReadOptions:
        return self._options

    def __setstate__(self, options: ReadOptions) -> None:
        self._options, self._running = options, None

    # In the source process.

    def initialOffset(self) -> Offset:  # noqa: N802
        """The same for all queries: where they begin is said by their first batch."""
        return written(INITIAL)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """``maxOffsetsPerTrigger``, or ``minOffsetsPerTrigger`` where that alone is given."""
        pace = self._options.pace
        if pace.records_max is not None:
            return ReadMaxRows(pace.records_max)
        if pace.records_min is not None:
            return ReadMinRows(pace.records_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix where the query ends."""
        running = self._begun()
        running.loop.call(running.stream.prepare_available_now())
        running.is_bounded = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """The end of the next batch; ``start`` itself, after a while, if nothing is new."""
        running = self._begun()
        pace = self._options.pace
        if isinstance(limit, ReadAllAvailable):
            pace = Pace()
        elif running.is_bounded:  # what is there now is all there will be
            pace = msgspec.structs.replace(pace, records_min=None)
        return running.loop.call(running.stream.latest(start, pace))

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Ends, lag, member and generation, as progress reports show them."""
        return None if self._running is None else self._running.stream.report()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """What ``end`` says; asked for several times, and again after a crash."""
        if start == end:
            return []
        running = self._begun()
        return [RangePartition(one) for one in running.loop.call(running.stream.partitions(end))]

    def commit(self, end: Offset) -> None:
        """Nothing: `latestOffset` has committed it, sooner and in every kind of trigger."""

    def stop(self) -> None:
        """Leave the group; asked again meanwhile, by a signal, it waits for the same."""
        running = self._running
        if running is not None:
            running.stop()
            self._running = None

    def _begun(self) -> Running:
        if self._running is None:
            self._running = Running(self._options)
            _on_sigterm(self.stop)
        return self._running

    # On executors.

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one range as Arrow batches."""
        if isinstance(partition, RangePartition):
            yield from read_range(partition.range, self._options)


class Running:
    """A stream, its connections, and the thread that they and the heartbeats live in."""

    def __init__(self, options: ReadOptions) -> None:
        self.loop = LoopThread("partage-source")
        self.cluster = Cluster(options.kafka.servers, options.kafka.client)
        self.stream = self.loop.call(_made(self.cluster, options))
        self.is_bounded = False
        self._leaving: Future[None] | None = None

    def stop(self) -> None:
        """Leave the group, however far anything else has come."""
        if self._leaving is None:
            self._leaving = self.loop.submit(self.end())
        try:
            self._leaving.result(_STOP_PATIENCE_S)
        except Exception as error:  # the query ends all the same
            log.info("could not leave the group error=%r", error)
        self.loop.stop()

    async def end(self, *, leaves: bool = True) -> None:
        """Leave, and drop the connections."""
        try:
            await self.stream.stop(leaves=leaves)
        finally:
            self.cluster.close()
            await asyncio.sleep(_CLOSING_S)  # transports close in a later turn of the loop


async def _made(cluster: Cluster, options: ReadOptions) -> Stream:
    return Stream(cluster, options)


def _on_sigterm(stop: Callable[[], None]) -> None:
    """Leave the group when Spark ends this process, which it does by SIGTERM and nothing else."""

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the second one changes nothing
        try:
            stop()
        finally:
            os._exit(0)

    with suppress(ValueError):  # not the main thread: Spark's process it is not
        signal.signal(signal.SIGTERM, handle)
