"""Doing on this broker's disk as the topics of the cluster say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec.structs import replace

from partage.broker.hosted import Hosted, HostedTopic
from partage.broker.topic_changes import Groups as LocalGroups
from partage.log.results import Refusal
from partage.store.shared_topics import SharedTopics
from partage.store.zk_schema import AppliedDoc, ForeignDataError, TopicDoc

log = logging.getLogger(__name__)


class Groups(LocalGroups, Protocol):
    """What following needs of the groups."""

    def forgot_in(self) -> dict[int, int]:
        """The shards in which nothing is left of what they were to forget, and their epochs."""


class Following:
    """Brings the topics that this broker holds, and knows of, to what all have agreed on.

    Every broker keeps the whole list; of the partitions only its own. The ``groups`` forget
    topics that are gone before others are told that it is done.
    """

    def __init__(self, hosted: Hosted, broker_id: int, groups: Groups) -> None:
        self._hosted = hosted
        self._broker_id = broker_id
        self._groups = groups
        self._one_at_a_time = asyncio.Lock()
        self._begin(None)
        self._strays: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def _begin(self, topics: SharedTopics | None) -> None:
        """What was told, and what the groups have forgotten, is of one session."""
        self._topics = topics
        self._applied = AppliedDoc()
        self._told: AppliedDoc | None = None
        self._graves: dict[str, str] = {}  # of deleted topics; their names by their ids
        self._forgotten: set[str] = set()  # of these, what the groups have been told to forget

    async def follow(
        self, topics: SharedTopics, changed: Callable[[], None], *, is_first: bool = False
    ) -> None:
        """Do as the topics say, as of now. What is begun is finished, also where whoever called is
        cancelled: a tombstone must not go before the deletion is on the disk.

        Raises `ForeignDataError` where, at the start, there are partitions that the cluster does not
        know, and did not delete either.
        """
        work = self._follow(topics, changed, is_first=is_first)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def settled(self) -> None:
        """Return once nothing is under way; the session is over by then, so that it ends."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(
        self, topics: SharedTopics, changed: Callable[[], None], *, is_first: bool
    ) -> None:
        async with self._one_at_a_time:
            await topics.catch_up(changed)
            # Clients of this very broker may change the topics while this is under way.
            version, wanted = topics.version, dict(topics.topics)
            if self._topics is not topics:
                self._begin(topics)
            if self._applied.value != version:
                is_removed = await self._remove(topics, wanted, is_first=is_first)
                if is_removed:
                    self._applied = replace(self._applied, forgot=version)
                done = [await self._put(*each) for each in wanted.items()]
                if is_removed and all(done):  # else it is tried again, soon
                    self._applied = replace(self._applied, value=version)
            # Also when nothing has changed: shards may have been loaded meanwhile.
            applied = replace(self._applied, shards=self._groups.forgot_in())
            if applied != self._told and await topics.publish_applied(applied):
                self._told = applied
            if self._graves:
                await self._release(topics)

    async def _remove(
        self, topics: SharedTopics, wanted: Mapping[str, TopicDoc], *, is_first: bool
    ) -> bool:
        """Whether nothing of what was deleted is here any more."""
        gone = await self._unheard(topics, wanted)
        self._forget(gone)
        deleted = set(await topics.tombstones())
        removed: dict[str, str] = {}
        is_done = True
        for hosted in self._hosted.topics():
            topic_id = hosted.topic.topic_id.hex()
            known = wanted.get(hosted.name)
            if known is not None and known.id == topic_id:
                continue
            if hosted.partitions and topic_id not in deleted:
                self._found_stray(hosted, is_first=is_first)
            elif isinstance(await self._hosted.delete(hosted.name), Refusal):
                is_done = False
            else:
                removed[topic_id] = hosted.name
        self._forget(removed)
        if gone or removed:
            await self._groups.stored()
        for topic_id in deleted - {topic.id for topic in wanted.values()}:
            if self._hosted.topic_by_id(bytes.fromhex(topic_id)) is None:
                await topics.remove_tombstone(topic_id)
        return is_done

    async def _unheard(
        self, topics: SharedTopics, wanted: Mapping[str, TopicDoc]
    ) -> dict[str, str]:
        """Deleted topics that the groups have to forget though they are not on this disk.

        This broker may never have heard of a topic of which a shard has offsets that it has taken
        over. They are forgotten at once: once the grave is gone, the name may be another's. A shard
        that it takes later forgets them when it is loaded.
        """
        self._graves = await topics.reserved_topics()
        self._forgotten &= self._graves.keys()
        # What is here takes commits until it is removed. What is wanted was deleted just now, and
        # is met again when that is followed; or, should a topic ever be made while there is a grave
        # of its name, the offsets may be its own: other brokers may have it already.
        kept = {hosted.name for hosted in self._hosted.topics()} | wanted.keys()
        return {
            topic_id: name
            for topic_id, name in self._graves.items()
            if topic_id not in self._forgotten and name not in kept
        }

    def _forget(self, gone: Mapping[str, str]) -> None:
        if gone:
            self._groups.forget_topics(frozenset(gone.values()))
            self._forgotten |= gone.keys()

    async def _release(self, topics: SharedTopics) -> None:
        """Let their names be used again, where whoever deleted them could not: a broker had died,
        or was slow. All try it, even at once: the last to tell that it has forgotten finds that all
        have; and who is gone tells nothing.
        """
        left = await topics.release_names()
        self._graves = {key: name for key, name in self._graves.items() if name in left}

    def _found_stray(self, hosted: HostedTopic, *, is_first: bool) -> None:
        story = (
            f"topic {hosted.name} is on this broker's disk, and the cluster neither has it nor has "
            "deleted it: was ZooKeeper restored from an old copy? Restore a newer one, or start "
            "the broker with an empty --data-dir"
        )
        if is_first:
            raise ForeignDataError(story)
        if hosted.name not in self._strays:
            log.error("%s", story)
            self._strays.add(hosted.name)

    async def _put(self, name: str, topic: TopicDoc) -> bool:
        """Whether the topic is here as the cluster has it."""
        hosted = self._hosted.topic(name)
        outcome: HostedTopic | Refusal | None = None
        if hosted is None:
            outcome = await self._hosted.create(
                name,
                len(topic.brokers),
                topic.configs,
                topic_id=bytes.fromhex(topic.id),
                brokers=topic.brokers,
            )
        elif hosted.topic.topic_id.hex() != topic.id:
            return True  # a stray has the name, and has been told of
        else:
            if len(topic.brokers) > hosted.partition_count:
                outcome = await self._hosted.add_partitions(name, len(topic.brokers), topic.brokers)
            if not isinstance(outcome, Refusal) and topic.configs != hosted.topic.configs:
                outcome = await self._configure(name, topic)
        if isinstance(outcome, Refusal):
            log.error("topic %s is not as the cluster has it: %s", name, outcome.message)
        return not isinstance(outcome, Refusal)

    async def _configure(self, name: str, topic: TopicDoc) -> Refusal | None:
        def edit(configs: dict[str, str]) -> None:
            configs.clear()
            configs.update(topic.configs)

        return await self._hosted.alter_configs(name, edit, validate_only=False)
