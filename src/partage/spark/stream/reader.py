"""The streaming reader that Spark calls, in a separate process for each query.

Spark creates readers in several processes: planners, executors and the query's *source process*. It
asks for offsets in the source process only. So a reader joins the group at the first request for an
offset, not at creation, and its pickle contains the options only.
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
from partage.spark.offset_resolver import planning_options
from partage.spark.options import ReadOptions
from partage.spark.ranges import RangePartition, read_range
from partage.spark.stream.offset import INITIAL_OFFSET, encode_offset
from partage.spark.stream.stream_source import StreamSource
from partage.spark.stream.trigger_limits import TriggerLimits

log = logging.getLogger(__name__)

#: Longer than a member needs to leave the group, but short for the caller that stops the query.
_STOP_TIMEOUT_S: Final = 4.0
_CLOSING_S: Final = 0.01

OffsetJson = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the partitions that the query owns, batch after batch."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._runtime: StreamRuntime | None = None
        self._is_available_now = False

    def __getstate__(self) -> ReadOptions:
        return self._options

    def __setstate__(self, options: ReadOptions) -> None:
        self._options, self._runtime, self._is_available_now = options, None, False

    # Called in the source process.

    def initialOffset(self) -> OffsetJson:  # noqa: N802
        """Return a constant; the first batch decides where a query starts."""
        return encode_offset(INITIAL_OFFSET)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return ``maxOffsetsPerTrigger``, or ``minOffsetsPerTrigger`` if only that is set."""
        limits = self._options.trigger_limits
        if limits.records_max is not None:
            return ReadMaxRows(limits.records_max)
        if limits.records_min is not None:
            return ReadMinRows(limits.records_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note that the query ends by itself. The next call fixes the offsets at which it ends."""
        self._is_available_now = True

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802
        """Return the end of the next batch, or ``start`` if no record arrives for a while."""
        running = self._start_runtime(start)
        limits = self._options.trigger_limits
        if isinstance(limit, ReadAllAvailable):
            limits = TriggerLimits()
        elif self._is_available_now:  # the query waits for no further records
            limits = msgspec.structs.replace(limits, records_min=None)
        return running.loop.call(running.source.latest_offset(start, limits))

    def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802
        """Return end offsets, lag, member and generation for Spark's progress reports."""
        return None if self._runtime is None else self._runtime.source.report()

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        """Return the partitions stored in ``end``. Spark can call it repeatedly."""
        if start == end:
            return []
        running = self._start_runtime(end)
        return [RangePartition(one) for one in running.loop.call(running.source.partitions(end))]

    def commit(self, end: OffsetJson) -> None:
        """Do nothing: `latestOffset` commits the batch, with every kind of trigger."""

    def stop(self) -> None:
        """Leave the group. A second call, from the signal handler, waits for the first."""
        running = self._runtime
        if running is not None:
            running.stop()
            self._runtime = None

    def _start_runtime(self, stored: OffsetJson) -> StreamRuntime:
        if self._runtime is None:
            self._runtime = StreamRuntime(
                self._options,
                is_available_now=self._is_available_now,
                # The addresses are right if the query has run before.
                is_known_to_answer=stored != self.initialOffset(),
            )
            _on_sigterm(self.stop)
        return self._runtime

    # Called on executors.

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of one range as Arrow batches."""
        if isinstance(partition, RangePartition):
            yield from read_range(partition.range, self._options)


class StreamRuntime:
    """A stream source with its cluster connections and the event loop thread that runs them."""

    def __init__(
        self, options: ReadOptions, *, is_available_now: bool, is_known_to_answer: bool
    ) -> None:
        self.loop = LoopThread("partage-source")
        kafka = planning_options(options)
        client = msgspec.structs.replace(kafka.client, may_retry_initial_connect=is_known_to_answer)
        self.cluster = Cluster(kafka.servers, client)
        self.source = self.loop.call(_make_source(self.cluster, options, is_available_now))
        self._closing: Future[None] | None = None

    def stop(self) -> None:
        """Leave the group, even while another call is in progress, and stop the event loop."""
        if self._closing is None:
            self._closing = self.loop.submit(self.close())
        try:
            self._closing.result(_STOP_TIMEOUT_S)
        except Exception as error:  # stopping the query must not fail
            log.info("could not leave the group error=%r", error)
        self.loop.stop()

    async def close(self, *, leaves: bool = True) -> None:
        """Stop the source and close the connections."""
        try:
            await self.source.stop(leaves=leaves)
        finally:
            self.cluster.close()
            # transports close in a later iteration of the event loop
            await asyncio.sleep(_CLOSING_S)


async def _make_source(
    cluster: Cluster, options: ReadOptions, is_available_now: bool
) -> StreamSource:
    return StreamSource(cluster, options, is_available_now=is_available_now)


def _on_sigterm(stop: Callable[[], None]) -> None:
    """Leave the group on SIGTERM, which is the only signal by which Spark ends this process."""

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # ignore a second SIGTERM
        try:
            stop()
        finally:
            os._exit(0)

    # signal handlers need the main thread; outside Spark this may be another thread
    with suppress(ValueError):
        signal.signal(signal.SIGTERM, handle)
