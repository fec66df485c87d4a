"""Resolution of read options to offset ranges, and the division of ranges into Spark partitions."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from partage.client.cluster import Cluster
from partage.client.errors import (
    ClientError,
    RecordsUnavailableError,
    UnknownPartitionError,
    UnknownTopicError,
)
from partage.client.offsets import EARLIEST, LATEST, OffsetAndTimestamp, list_offsets
from partage.client.options import RetryPolicy
from partage.model.topic_partition import TopicPartition
from partage.spark.bounds import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Earliest,
    Latest,
    OffsetBound,
    SparkOptionError,
)
from partage.spark.kafka_options import KafkaOptions
from partage.spark.options import (
    AssignStrategy,
    ConsumerStrategy,
    ReadOptions,
    SubscribeStrategy,
    check_same_partitions,
    named_partitions,
)

log = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, int]


class TopicDeletedError(ClientError):
    """A topic was deleted or recreated before the query had read all its records."""


class BrokersDisagreeError(ClientError):
    """One broker reports a topic, and another broker does not know it."""

    is_retriable = True

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"the brokers disagree about topic {topic!r}: one reports it, another does not know "
            "it. Check that the brokers of kafka.bootstrap.servers belong to one cluster"
        )


class OffsetRange(NamedTuple):
    """The offsets of a partition from ``from_offset`` up to, not including, ``to_offset``."""

    partition: TopicPartition
    from_offset: int
    to_offset: int

    @property
    def size(self) -> int:
        """Number of offsets. Compaction and transactions can leave fewer records than offsets."""
        return self.to_offset - self.from_offset


async def plan_batch(cluster: Cluster, options: ReadOptions) -> list[OffsetRange]:
    """Resolve the options of a batch read to offset ranges, with the current state of the cluster.

    Raises:
        SparkOptionError: if offsets name other partitions than those read, or a range ends before
            it starts.
        RecordsUnavailableError: if offsets do not exist and failOnDataLoss is true.
        ClientError: if a topic does not exist, or the cluster does not answer.
    """
    partitions = await resolve_partitions(cluster, options.strategy)
    for end, bound in (("starting", options.starting), ("ending", options.ending)):
        named = named_partitions(bound)
        if named is not None:
            check_same_partitions(end, named, set(partitions))
    ranges = await _OffsetResolver(cluster, partitions, options).ranges()
    return split_ranges(
        [one for one in ranges if one.size > 0],
        options.partitions_min,
        options.records_per_partition_max,
    )


async def starting_offsets(
    cluster: Cluster, partitions: list[TopicPartition], starting: OffsetBound, options: ReadOptions
) -> dict[TopicPartition, int]:
    """Return the first offset to read of each partition. Omit partitions not named by ``starting``.

    Raises:
        SparkOptionError: if no record is at or after a starting timestamp, and
            startingOffsetsByTimestampStrategy is "error".
        ClientError: if the cluster does not answer.
    """
    if not partitions:
        return {}
    return await _OffsetResolver(cluster, partitions, options).starts(starting)


async def end_offsets(cluster: Cluster, options: ReadOptions) -> dict[TopicPartition, int]:
    """Return the current end offset of each partition that is read.

    Raises:
        ClientError: if a topic does not exist, or the cluster does not answer.
    """
    partitions = await resolve_partitions(cluster, options.strategy)
    return dict(await _OffsetResolver(cluster, partitions, options).ends())


async def is_deleted(cluster: Cluster, topic: str, options: ReadOptions) -> bool:
    """Ask again for a topic that a broker did not know; return False if it exists.

    A restarted broker may learn of its topics late.
    """
    await asyncio.sleep(options.offset_retry_interval_ms / 1000)
    try:
        await cluster.topics([topic], fresh=True)
    except UnknownTopicError:
        return True
    return False


def lookup_timeout_ms(options: ReadOptions) -> int:
    """Return the longest time for lookups while brokers are unavailable, in ms.

    Spark's connector makes ``fetchOffset.numRetries`` attempts, and each of them lasts up to
    ``default.api.timeout.ms``.
    """
    return options.offset_attempts_max * options.kafka.client.retries.timeout_ms


def planning_options(options: ReadOptions) -> KafkaOptions:
    """Return the options of the client that plans a read; its lookups have `lookup_timeout_ms`."""
    client = options.kafka.client
    retries = msgspec.structs.replace(client.retries, timeout_ms=lookup_timeout_ms(options))
    return msgspec.structs.replace(
        options.kafka, client=msgspec.structs.replace(client, retries=retries)
    )


def offset_retries(options: ReadOptions) -> RetryPolicy:
    """Return the retry policy for offset lookups, from the ``fetchOffset.*`` options."""
    interval_ms = options.offset_retry_interval_ms
    return RetryPolicy(
        timeout_ms=lookup_timeout_ms(options),
        backoff_ms=interval_ms,
        backoff_max_ms=max(interval_ms, options.kafka.client.retries.backoff_max_ms),
    )


async def resolve_partitions(cluster: Cluster, wanted: ConsumerStrategy) -> list[TopicPartition]:
    """Return the partitions that the options select, sorted, from fresh metadata.

    Raises:
        UnknownTopicError, UnknownPartitionError: if a named topic or partition does not exist.
        ClientError: if the cluster does not answer.
    """
    if isinstance(wanted, AssignStrategy):
        named = {partition.topic for partition in wanted.partitions}
        topics = await cluster.topics(named, fresh=True)
        for partition in wanted.partitions:
            if partition.partition not in topics[partition.topic].partitions:
                raise UnknownPartitionError(partition, len(topics[partition.topic].partitions))
        return list(wanted.partitions)
    if isinstance(wanted, SubscribeStrategy):
        topics = await cluster.topics(wanted.topics, fresh=True)
    else:
        pattern = re.compile(wanted.pattern)
        topics = {
            name: topic
            for name, topic in (await cluster.all_topics()).items()
            if not topic.is_internal and pattern.fullmatch(name)
        }
        if not topics:
            log.warning("no topic matched subscribePattern=%s", wanted.pattern)
    return sorted(p for topic in topics.values() for p in topic.topic_partitions)


class _OffsetResolver:
    """Resolves bounds to offsets against one snapshot of the partitions' start and end offsets."""

    def __init__(
        self,
        cluster: Cluster,
        partitions: list[TopicPartition],
        options: ReadOptions,
    ) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._options = options
        self._policy = offset_retries(options)
        self._earliest: Offsets = {}
        self._latest: Offsets = {}

    async def starts(self, starting: OffsetBound) -> dict[TopicPartition, int]:
        await self._refresh_ends()
        return dict(await self._resolve(starting, is_start=True))

    async def ends(self) -> Offsets:
        return _ends(await self._find(dict.fromkeys(self._partitions, LATEST)))

    async def ranges(self) -> list[OffsetRange]:
        await self._refresh_ends()
        starting = await self._resolve(self._options.starting or Earliest(), is_start=True)
        ending = await self._resolve(self._options.ending or Latest(), is_start=False)
        return [self._check_range(p, starting[p], ending[p]) for p in self._partitions]

    async def _refresh_ends(self) -> None:
        self._earliest = _ends(await self._find(dict.fromkeys(self._partitions, EARLIEST)))
        self._latest = await self.ends()

    async def _find(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return await list_offsets(
            self._cluster,
            wanted,
            read_committed=self._options.kafka.fetch.read_committed,
            policy=self._policy,
        )

    async def _resolve(self, bound: OffsetBound, *, is_start: bool) -> Offsets:
        if isinstance(bound, Earliest):
            return self._earliest
        if isinstance(bound, Latest):
            return self._latest
        if isinstance(bound, AtOffsets):
            ends = {EARLIEST_OFFSET: self._earliest, LATEST_OFFSET: self._latest}
            named = {p: bound.offsets[p] for p in self._partitions if p in bound.offsets}
            return {p: ends[o][p] if o in ends else o for p, o in named.items()}
        if isinstance(bound, AtTimestamp):
            bound = AtTimestamps(dict.fromkeys(self._partitions, bound.timestamp_ms))
        times_ms = bound.timestamps_ms
        found = await self._find({p: times_ms[p] for p in self._partitions if p in times_ms})
        return {
            p: self._unmatched(p, bound, is_start) if one is None else one.offset
            for p, one in found.items()
        }

    def _unmatched(self, partition: TopicPartition, bound: AtTimestamps, is_start: bool) -> int:
        """Return the latest offset if no record is that late; raise if that is an error for a
        start.
        """
        if is_start and self._options.unmatched_start == "error":
            raise SparkOptionError(
                f"no record of {partition} is at or after {bound.timestamps_ms[partition]}; "
                "startingOffsetsByTimestampStrategy=latest starts after the last record"
            )
        return self._latest[partition]

    def _check_range(self, partition: TopicPartition, first: int, last: int) -> OffsetRange:
        """Check that the range exists; with failOnDataLoss=false, cut it to the available part."""
        earliest, latest = self._earliest[partition], self._latest[partition]
        # An empty range reads nothing, so its position does not matter.
        for offset in (first, last) if first != last else ():
            if not earliest <= offset <= latest:
                gone = RecordsUnavailableError(partition, offset, earliest, latest)
                if self._options.fail_on_data_loss:
                    raise gone
                log.warning("%s; skipped because failOnDataLoss=false", gone)
                first = min(max(first, earliest), latest)
                last = min(max(last, earliest), latest)
        if first > last:
            raise SparkOptionError(
                f"the read of {partition} starts at {first}, after its end {last}"
            )
        return OffsetRange(partition, first, last)


def _ends(found: Mapping[TopicPartition, OffsetAndTimestamp | None]) -> Offsets:
    return {p: 0 if one is None else one.offset for p, one in found.items()}


def split_ranges(
    ranges: Iterable[OffsetRange],
    partitions_min: int | None = None,
    records_per_partition_max: int | None = None,
) -> list[OffsetRange]:
    """Split ranges so that none exceeds the maximum and there are at least ``partitions_min``.

    The largest parts are split first. The parts of one range differ in size by at most one offset.
    The result has fewer than ``partitions_min`` parts if there are not enough offsets.

    Args:
        ranges: ranges to split.
        partitions_min: the option ``minPartitions``; None for no minimum.
        records_per_partition_max: the option ``maxRecordsPerPartition``; None for no maximum.
    """
    ranges = list(ranges)
    limit = records_per_partition_max
    parts = [1 if limit is None else -(-one.size // limit) for one in ranges]
    missing = (partitions_min or 0) - sum(parts)
    # Ordered by part size, largest first, then by position.
    heap = [
        (-one.size / count, index)
        for index, (one, count) in enumerate(zip(ranges, parts, strict=True))
    ]
    heapq.heapify(heap)
    while missing > 0 and heap:
        _, index = heapq.heappop(heap)
        if parts[index] >= ranges[index].size:
            continue  # one offset in each part
        parts[index] += 1
        missing -= 1
        heapq.heappush(heap, (-ranges[index].size / parts[index], index))
    return [
        part for one, count in zip(ranges, parts, strict=True) for part in _split_range(one, count)
    ]


def _split_range(whole: OffsetRange, count: int) -> Iterable[OffsetRange]:
    edges = [whole.from_offset + whole.size * n // count for n in range(count + 1)]
    for first, last in itertools.pairwise(edges):
        yield OffsetRange(whole.partition, first, last)
