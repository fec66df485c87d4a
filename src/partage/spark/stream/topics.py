"""The topics of one query: which there are, where they begin and end, and what is gone of them."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from partage.client.cluster import Cluster
from partage.client.errors import (
    ClientError,
    RecordsUnavailableError,
    UnknownPartitionError,
    UnknownTopicError,
)
from partage.client.metadata import TopicPartition
from partage.client.offsets import list_offsets
from partage.spark.bounds import Earliest, Latest
from partage.spark.options import (
    Assign,
    ReadOptions,
    Subscribe,
    SubscribePattern,
    Wanted,
    check_named,
    named_partitions,
)
from partage.spark.planning import retry_policy, starting_offsets, wanted_partitions
from partage.spark.stream.offset import BadCheckpoint, StreamOffset, TopicMark

log = logging.getLogger(__name__)

_GONE_FOR_S: Final = 5.0


class TopicGone(ClientError):
    """A topic that a query reads was deleted, or made anew, while there was more to read."""


class Topics:
    """What a query knows of its topics; used on the loop."""

    def __init__(self, cluster: Cluster, options: ReadOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._policy = retry_policy(cluster, options)
        #: The topics that are read, as of the last look.
        self.marks: dict[str, TopicMark] = {}
        self._anew: set[str] = set()
        self._known: Mapping[str, int] | None = None
        self._gone: dict[str, float] = {}
        self._complained: set[str] = set()

    async def begin(self) -> None:
        """Look for what the options name.

        Raises:
            UnknownTopicError, UnknownPartitionError: it is not there.
            BrokersUnreachableError: nobody answers.
        """
        found = await wanted_partitions(self._cluster, self._options.wanted)
        await self._mark({partition.topic for partition in found})

    async def start(self, kept: StreamOffset) -> StreamOffset:
        """What Spark has kept, without what is not so any more.

        Raises:
            BadCheckpoint: it is of other topics than the query reads.
            TopicGone: a topic was made anew, unless failOnDataLoss is false.
        """
        if self._known is None:
            await self._begin_at(kept)
        anew = {
            name
            for name, mark in kept.topics.items()
            if (now := self.marks.get(name)) and _is_another(mark, now)
        }
        for name in anew:
            self._made_anew(name)
        self._anew |= anew
        ranges = {p: r for p, r in kept.ranges.items() if p.topic not in anew}
        return msgspec.structs.replace(kept, ranges=ranges) if anew else kept

    async def _begin_at(self, kept: StreamOffset) -> None:
        if kept.is_initial:
            named = named_partitions(self._options.starting)
            if named is not None:
                wanted = await wanted_partitions(self._cluster, self._options.wanted)
                check_named("starting", named, set(wanted))
            self._known = {name: mark.partitions for name, mark in self.marks.items()}
            return
        self._known = {name: mark.partitions for name, mark in kept.topics.items()}
        others = sorted(name for name in kept.topics if not self._is_wanted(name))
        if others and len(others) == len(kept.topics):
            raise BadCheckpoint(
                f"the checkpoint belongs to topics {', '.join(others)}, none of which this query "
                "reads; give it a new checkpointLocation"
            )
        if others:
            self._complain(f"the checkpoint has topics that the query does not read: {others}")

    def _is_wanted(self, topic: str) -> bool:
        match self._options.wanted:
            case Subscribe(topics=topics):
                return topic in topics
            case SubscribePattern(pattern=pattern):
                return re.fullmatch(pattern, topic) is not None
            case Assign(partitions=partitions):
                return any(partition.topic == topic for partition in partitions)

    # What there is.

    async def wanted(self) -> list[TopicPartition]:
        """The partitions that the options name, of the topics that are still there.

        Raises:
            TopicGone: a topic was deleted, unless failOnDataLoss is false.
        """
        while True:
            wanted = self._still_there()
            if wanted is None:
                return []
            try:
                return await wanted_partitions(self._cluster, wanted)
            except UnknownTopicError as error:
                self._deleted(error.topic)

    def _still_there(self) -> Wanted | None:
        match self._options.wanted:
            case Subscribe(topics=topics):
                left = tuple(topic for topic in topics if not self._is_gone(topic))
                return Subscribe(left) if left else None
            case Assign(partitions=partitions):
                stay = tuple(p for p in partitions if not self._is_gone(p.topic))
                return Assign(stay) if stay else None
        return self._options.wanted

    async def refresh(self) -> set[str]:
        """Look anew at the topics that are read; those that were made anew meanwhile."""
        before = dict(self.marks)
        await self._mark(before)
        anew = {name for name, mark in self.marks.items() if _is_another(before.get(name), mark)}
        for name in anew:
            self._made_anew(name)
        return anew

    async def _mark(self, names: Iterable[str]) -> None:
        wanted = sorted(name for name in names if not self._is_gone(name))
        while wanted:
            try:
                found = await self._cluster.topics(wanted, fresh=True)
            except UnknownTopicError as error:
                self._deleted(error.topic)
                wanted.remove(error.topic)
            else:
                for name, topic in found.items():
                    self.marks[name] = TopicMark(topic.topic_id.hex(), len(topic.partitions))
                return

    async def find(
        self, partitions: Sequence[TopicPartition], at: int
    ) -> dict[TopicPartition, int]:
        """One end of each partition, of those that are still there.

        Raises:
            TopicGone: a topic was deleted, unless failOnDataLoss is false.
            ClientError: nobody knows, for now.
        """
        while left := [p for p in partitions if not self._is_gone(p.topic)]:
            unmarked = {p.topic for p in left} - self.marks.keys()
            if unmarked:
                await self._mark(unmarked)
                continue
            try:
                found = await list_offsets(
                    self._cluster,
                    dict.fromkeys(left, at),
                    read_committed=self._options.kafka.fetch.read_committed,
                    policy=self._policy,
                )
            except UnknownTopicError as error:
                self._deleted(error.topic)
            except UnknownPartitionError as error:
                self._deleted(error.partition.topic)
            else:
                return {p: offset.offset for p, offset in found.items() if offset is not None}
        return {}

    async def beginnings(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Where to begin with partitions that nobody has begun with.

        Where ``startingOffsets`` says; with those that the query has not known from its start, as
        new topics and partitions, at their first record.
        """
        assert self._known is not None, "call check_start first"
        known = self._known
        left = [p for p in partitions if not self._is_gone(p.topic)]
        old = [p for p in left if p.partition < known.get(p.topic, 0) and p.topic not in self._anew]
        new = [p for p in left if p not in set(old)]
        bound = self._options.starting or Latest()
        return {
            **await starting_offsets(self._cluster, old, bound, self._options),
            **await starting_offsets(self._cluster, new, Earliest(), self._options),
        }

    # What is gone.

    def gone(self, error: RecordsUnavailableError) -> None:
        """Records are gone that were not read. Raises it, unless failOnDataLoss is false."""
        if self._options.fail_on_data_loss:
            raise error
        self._complain(f"{error}; skipped because failOnDataLoss=false")

    def _made_anew(self, name: str) -> None:
        story = f"topic {name!r} was deleted and recreated; its unread records are lost"
        if self._options.fail_on_data_loss:
            raise TopicGone(f"{story}. Set failOnDataLoss=false to continue with the new topic")
        self._complain(f"{story}. Continuing at the first record of the new topic")

    def _deleted(self, name: str) -> None:
        story = f"topic {name!r} was deleted while the query read it"
        if self._options.fail_on_data_loss:
            raise TopicGone(f"{story}. Set failOnDataLoss=false to continue without it")
        self._complain(f"{story}. Continuing without it")
        self._gone[name] = asyncio.get_running_loop().time() + _GONE_FOR_S

    def _is_gone(self, name: str) -> bool:
        until_s = self._gone.get(name)
        return until_s is not None and asyncio.get_running_loop().time() < until_s

    def _complain(self, story: str) -> None:
        if story not in self._complained:
            self._complained.add(story)
            log.warning("%s", story)


def _is_another(before: TopicMark | None, now: TopicMark) -> bool:
    """Whether a topic has been made anew; brokers before Kafka 2.8 have no ids to tell by."""
    if before is None or not int(before.topic_id or "0", 16) or not int(now.topic_id or "0", 16):
        return False
    return before.topic_id != now.topic_id
