"""The topics of one query: their partitions and offsets, and the detection of deleted records."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from partage.client.cluster import Cluster
from partage.client.errors import (
    RecordsUnavailableError,
    UnknownPartitionError,
    UnknownTopicError,
)
from partage.client.metadata import TopicMetadata
from partage.client.offsets import OffsetAndTimestamp, list_offsets
from partage.client.retries import Retries
from partage.model.topic_partition import TopicPartition
from partage.spark.bounds import Earliest, Latest
from partage.spark.offset_resolver import (
    BrokersDisagreeError,
    TopicDeletedError,
    is_deleted,
    offset_retries,
    resolve_partitions,
    starting_offsets,
)
from partage.spark.options import (
    AssignStrategy,
    ConsumerStrategy,
    ReadOptions,
    SubscribePatternStrategy,
    SubscribeStrategy,
    check_same_partitions,
    named_partitions,
)
from partage.spark.stream.offset import CheckpointError, StreamOffset, TopicSnapshot

log = logging.getLogger(__name__)

T = TypeVar("T")

_DELETED_FOR_S: Final = 5.0


class QueryTopics:
    """State of the topics that a query reads. Use it on the event loop only."""

    def __init__(self, cluster: Cluster, options: ReadOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._policy = offset_retries(options)
        #: Topics that are read, at the last refresh.
        self.snapshots: dict[str, TopicSnapshot] = {}
        self._recreated: set[str] = set()
        self._initial_counts: Mapping[str, int] | None = None
        self._deleted_until_s: dict[str, float] = {}
        self._warned: set[str] = set()

    async def load(self, stored: StreamOffset) -> None:
        """Look up the topics that the options select.

        Args:
            stored: the offset that Spark has stored; its topics existed once.

        Raises:
            UnknownTopicError, UnknownPartitionError: if a named topic or partition does not exist.
            TopicDeletedError: if a topic of ``stored`` does not exist and failOnDataLoss is true.
            BrokersUnreachableError: if no broker answers.
        """
        found = await self._resolve(may_be_deleted=stored.topics.__contains__)
        await self._refresh_snapshots({partition.topic for partition in found})

    async def check_start(self, stored: StreamOffset) -> StreamOffset:
        """Check the start offset of a batch, and remove the ranges of recreated topics.

        Args:
            stored: the offset that Spark has stored.

        Raises:
            CheckpointError: if the query reads none of the offset's topics.
            TopicDeletedError: if a topic was recreated and failOnDataLoss is true.
        """
        if self._initial_counts is None:
            await self._check_first_start(stored)
        recreated = {
            name
            for name, mark in stored.topics.items()
            if (now := self.snapshots.get(name)) and _is_recreated(mark, now)
        }
        for name in recreated:
            self._on_recreated(name)
        self._recreated |= recreated
        ranges = {p: r for p, r in stored.ranges.items() if p.topic not in recreated}
        return msgspec.structs.replace(stored, ranges=ranges) if recreated else stored

    async def _check_first_start(self, stored: StreamOffset) -> None:
        if stored.is_initial:
            named = named_partitions(self._options.starting)
            if named is not None:
                wanted = await resolve_partitions(self._cluster, self._options.strategy)
                check_same_partitions("starting", named, set(wanted))
            self._initial_counts = {name: mark.partitions for name, mark in self.snapshots.items()}
            return
        self._initial_counts = {name: mark.partitions for name, mark in stored.topics.items()}
        others = sorted(name for name in stored.topics if not self._is_wanted(name))
        if others and len(others) == len(stored.topics):
            raise CheckpointError(
                f"the checkpoint belongs to topics {', '.join(others)}, none of which this query "
                "reads; give it a new checkpointLocation"
            )
        if others:
            self._warn_once(f"the checkpoint has topics that the query does not read: {others}")

    def _is_wanted(self, topic: str) -> bool:
        match self._options.strategy:
            case SubscribeStrategy(topics=topics):
                return topic in topics
            case SubscribePatternStrategy(pattern=pattern):
                return re.fullmatch(pattern, topic) is not None
            case AssignStrategy(partitions=partitions):
                return any(partition.topic == topic for partition in partitions)

    # Partitions and offsets.

    async def list_partitions(self) -> list[TopicPartition]:
        """Return the partitions that the options select, without those of deleted topics.

        Raises:
            TopicDeletedError: if a topic was deleted and failOnDataLoss is true.
        """
        return await self._resolve(may_be_deleted=lambda topic: True)

    async def _resolve(self, may_be_deleted: Callable[[str], bool]) -> list[TopicPartition]:
        async def attempt() -> list[TopicPartition]:
            wanted = self._existing()
            return [] if wanted is None else await resolve_partitions(self._cluster, wanted)

        return await self._repeat_if_missing(attempt, may_be_deleted)

    def _existing(self) -> ConsumerStrategy | None:
        match self._options.strategy:
            case SubscribeStrategy(topics=topics):
                left = tuple(topic for topic in topics if not self._is_deleted(topic))
                return SubscribeStrategy(left) if left else None
            case AssignStrategy(partitions=partitions):
                existing = tuple(p for p in partitions if not self._is_deleted(p.topic))
                return AssignStrategy(existing) if existing else None
        return self._options.strategy

    async def refresh(self) -> set[str]:
        """Refresh the snapshots of all topics. Return the topics recreated in the meantime."""
        before = dict(self.snapshots)
        await self._refresh_snapshots(before)
        recreated = {
            name for name, mark in self.snapshots.items() if _is_recreated(before.get(name), mark)
        }
        for name in recreated:
            self._on_recreated(name)
        return recreated

    async def _refresh_snapshots(self, names: Iterable[str]) -> None:
        async def attempt() -> dict[str, TopicMetadata]:
            wanted = sorted(name for name in names if not self._is_deleted(name))
            return await self._cluster.topics(wanted, fresh=True) if wanted else {}

        for name, topic in (await self._repeat_if_missing(attempt)).items():
            self.snapshots[name] = TopicSnapshot(topic.topic_id.hex(), len(topic.partitions))

    async def list_offsets(
        self, partitions: Sequence[TopicPartition], at: int
    ) -> dict[TopicPartition, int]:
        """Look up the offset ``at`` (earliest or latest) of each partition whose topic exists.

        Raises:
            TopicDeletedError: if a topic was deleted and failOnDataLoss is true.
            ClientError: if the lookup fails for now.
        """

        async def attempt() -> dict[TopicPartition, OffsetAndTimestamp | None]:
            left = self._without_deleted(partitions)
            unmarked = {p.topic for p in left} - self.snapshots.keys()
            if unmarked:
                await self._refresh_snapshots(unmarked)
                left = self._without_deleted(left)
            if not left:
                return {}
            try:
                return await list_offsets(
                    self._cluster,
                    dict.fromkeys(left, at),
                    read_committed=self._options.kafka.fetch.read_committed,
                    policy=self._policy,
                )
            except UnknownPartitionError as error:
                self._on_deleted(error.partition.topic)
                return await attempt()

        found = await self._repeat_if_missing(attempt)
        return {p: offset.offset for p, offset in found.items() if offset is not None}

    async def first_positions(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the first positions of partitions without a committed or checkpointed offset.

        ``startingOffsets`` decides for the partitions that existed at the start of the query.
        Partitions and topics that are newer start at their first record.
        """
        assert self._initial_counts is not None, "call check_start first"
        known = self._initial_counts
        bound = self._options.starting or Latest()

        async def attempt() -> dict[TopicPartition, int]:
            left = self._without_deleted(partitions)
            old = [
                p
                for p in left
                if p.partition < known.get(p.topic, 0) and p.topic not in self._recreated
            ]
            new = [p for p in left if p not in set(old)]
            return {
                **await starting_offsets(self._cluster, old, bound, self._options),
                **await starting_offsets(self._cluster, new, Earliest(), self._options),
            }

        return await self._repeat_if_missing(attempt)

    # Data loss.

    def on_data_loss(self, error: RecordsUnavailableError) -> None:
        """Log that unread records were deleted. Raise the error if failOnDataLoss is true."""
        if self._options.fail_on_data_loss:
            raise error
        self._warn_once(f"{error}; skipped because failOnDataLoss=false")

    def _on_recreated(self, name: str) -> None:
        message = f"topic {name!r} was deleted and recreated; its unread records are lost"
        if self._options.fail_on_data_loss:
            raise TopicDeletedError(
                f"{message}. Set failOnDataLoss=false to continue with the new topic"
            )
        self._warn_once(f"{message}. Continuing at the first record of the new topic")

    async def _repeat_if_missing(
        self,
        attempt: Callable[[], Awaitable[T]],
        may_be_deleted: Callable[[str], bool] = lambda topic: True,
    ) -> T:
        """Repeat ``attempt`` without the topics that were deleted in the meantime.

        Raises:
            UnknownTopicError: if a topic does not exist that cannot have been deleted.
            TopicDeletedError: if a topic was deleted and failOnDataLoss is true.
            BrokersDisagreeError: if brokers disagree about a topic for `lookup_timeout_ms`.
        """
        retries = Retries(self._policy)
        while True:
            try:
                return await attempt()
            except UnknownTopicError as error:
                if not may_be_deleted(error.topic):
                    raise
                if await is_deleted(self._cluster, error.topic, self._options):
                    self._on_deleted(error.topic)
                else:
                    await retries.wait_or_raise(BrokersDisagreeError(error.topic))

    def _on_deleted(self, name: str) -> None:
        message = f"topic {name!r} was deleted while the query read it"
        if self._options.fail_on_data_loss:
            # Without the cause, which asks if another topic was meant.
            raise TopicDeletedError(
                f"{message}. Set failOnDataLoss=false to continue without it"
            ) from None
        self._warn_once(f"{message}. Continuing without it")
        self._deleted_until_s[name] = asyncio.get_running_loop().time() + _DELETED_FOR_S

    def _without_deleted(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        return [p for p in partitions if not self._is_deleted(p.topic)]

    def _is_deleted(self, name: str) -> bool:
        until_s = self._deleted_until_s.get(name)
        return until_s is not None and asyncio.get_running_loop().time() < until_s

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            log.warning("%s", message)


def _is_recreated(before: TopicSnapshot | None, now: TopicSnapshot) -> bool:
    """True if the topic was recreated. Brokers before Kafka 2.8 have no topic ids: then False."""
    if before is None or not int(before.topic_id or "0", 16) or not int(now.topic_id or "0", 16):
        return False
    return before.topic_id != now.topic_id
