"""Doing on this broker's disk as the topics of the cluster say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec.structs import replace

from partage.broker.topics.log_manager import LocalTopic, LogManager
from partage.broker.topics.topic_admin import CommittedOffsetsCleaner as LocalGroups
from partage.log.results import Refusal
from partage.store.shared_topics import SharedTopics
from partage.store.zk_schema import AppliedDoc, ForeignDataError, TopicDoc

log = logging.getLogger(__name__)


class ShardOffsetsCleaner(LocalGroups, Protocol):
    """What following needs of the groups."""

    def caught_up_epochs(self) -> dict[int, int]:
        """The shards in which nothing is left of what they were to forget, and their epochs."""


class TopicReconciler:
    """Brings the topics that this broker holds, and knows of, to what all have agreed on.

    Every broker keeps the whole list; of the partitions only its own. The ``groups`` forget
    topics that are gone before others are told that it is done.
    """

    def __init__(self, hosted: LogManager, broker_id: int, groups: ShardOffsetsCleaner) -> None:
        self._log_manager = hosted
        self._broker_id = broker_id
        self._groups = groups
        self._lock = asyncio.Lock()
        self._reset(None)
        self._strays: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def _reset(self, topics: SharedTopics | None) -> None:
        """What was told, and what the groups have forgotten, is of one session."""
        self._topics = topics
        self._applied = AppliedDoc()
        self._published: AppliedDoc | None = None
        self._reserved_names: dict[str, str] = {}  # of deleted topics; their names by their ids
        self._cleaned_ids: set[str] = set()  # of these, what the groups have been told to forget

    async def reconcile(
        self, topics: SharedTopics, changed: Callable[[], None], *, is_first: bool = False
    ) -> None:
        """Do as the topics say, as of now. What is begun is finished, also where whoever called is
        cancelled: a tombstone must not go before the deletion is on the disk.

        Raises `ForeignDataError` where, at the start, there are partitions that the cluster does not
        know, and did not delete either.
        """
        work = self._reconcile(topics, changed, is_first=is_first)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def wait_idle(self) -> None:
        """Return once nothing is under way; the session is over by then, so that it ends."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _reconcile(
        self, topics: SharedTopics, changed: Callable[[], None], *, is_first: bool
    ) -> None:
        async with self._lock:
            await topics.catch_up(changed)
            # Clients of this very broker may change the topics while this is under way.
            version, wanted = topics.version, dict(topics.topics)
            if self._topics is not topics:
                self._reset(topics)
            if self._applied.value != version:
                is_removed = await self._remove_deleted(topics, wanted, is_first=is_first)
                if is_removed:
                    self._applied = replace(self._applied, forgot=version)
                done = [await self._apply(*each) for each in wanted.items()]
                if is_removed and all(done):  # else it is tried again, soon
                    self._applied = replace(self._applied, value=version)
            # Also when nothing has changed: shards may have been loaded meanwhile.
            applied = replace(self._applied, shards=self._groups.caught_up_epochs())
            if applied != self._published and await topics.publish_applied(applied):
                self._published = applied
            if self._reserved_names:
                await self._release_names(topics)

    async def _remove_deleted(
        self, topics: SharedTopics, wanted: Mapping[str, TopicDoc], *, is_first: bool
    ) -> bool:
        """Whether nothing of what was deleted is here any more."""
        gone = await self._deleted_elsewhere(topics, wanted)
        self._delete_offsets(gone)
        deleted = set(await topics.tombstones())
        removed: dict[str, str] = {}
        is_done = True
        for hosted in self._log_manager.topics():
            topic_id = hosted.topic.topic_id.hex()
            known = wanted.get(hosted.name)
            if known is not None and known.id == topic_id:
                continue
            if hosted.partitions and topic_id not in deleted:
                self._report_stray(hosted, is_first=is_first)
            elif isinstance(await self._log_manager.delete(hosted.name), Refusal):
                is_done = False
            else:
                removed[topic_id] = hosted.name
        self._delete_offsets(removed)
        if gone or removed:
            await self._groups.wait_durable()
        for topic_id in deleted - {topic.id for topic in wanted.values()}:
            if self._log_manager.topic_by_id(bytes.fromhex(topic_id)) is None:
                await topics.remove_tombstone(topic_id)
        return is_done

    async def _deleted_elsewhere(
        self, topics: SharedTopics, wanted: Mapping[str, TopicDoc]
    ) -> dict[str, str]:
        """Deleted topics that the groups have to forget though they are not on this disk.

        This broker may never have heard of a topic of which a shard has offsets that it has taken
        over. They are forgotten at once: once the grave is gone, the name may be another's. A shard
        that it takes later forgets them when it is loaded.
        """
        self._reserved_names = await topics.reserved_topics()
        self._cleaned_ids &= self._reserved_names.keys()
        # What is here takes commits until it is removed. What is wanted was deleted just now, and
        # is met again when that is followed; or, should a topic ever be made while there is a grave
        # of its name, the offsets may be its own: other brokers may have it already.
        kept = {hosted.name for hosted in self._log_manager.topics()} | wanted.keys()
        return {
            topic_id: name
            for topic_id, name in self._reserved_names.items()
            if topic_id not in self._cleaned_ids and name not in kept
        }

    def _delete_offsets(self, gone: Mapping[str, str]) -> None:
        if gone:
            self._groups.delete_topic_offsets(frozenset(gone.values()))
            self._cleaned_ids |= gone.keys()

    async def _release_names(self, topics: SharedTopics) -> None:
        """Let their names be used again, where whoever deleted them could not: a broker had died,
        or was slow. All try it, even at once: the last to tell that it has forgotten finds that all
        have; and who is gone tells nothing.
        """
        left = await topics.release_names()
        self._reserved_names = {
            key: name for key, name in self._reserved_names.items() if name in left
        }

    def _report_stray(self, hosted: LocalTopic, *, is_first: bool) -> None:
        story = (
            f"topic {hosted.name} is on this broker's disk, but the cluster neither has it nor has "
            "deleted it. ZooKeeper may have been restored from an old backup: restore a newer one, "
            "or start the broker with an empty --data-dir"
        )
        if is_first:
            raise ForeignDataError(story)
        if hosted.name not in self._strays:
            log.error("%s", story)
            self._strays.add(hosted.name)

    async def _apply(self, name: str, topic: TopicDoc) -> bool:
        """Whether the topic is here as the cluster has it."""
        hosted = self._log_manager.topic(name)
        outcome: LocalTopic | Refusal | None = None
        if hosted is None:
            outcome = await self._log_manager.create(
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
                outcome = await self._log_manager.add_partitions(
                    name, len(topic.brokers), topic.brokers
                )
            if not isinstance(outcome, Refusal) and topic.configs != hosted.topic.configs:
                outcome = await self._apply_configs(name, topic)
        if isinstance(outcome, Refusal):
            log.error("change of topic %s not applied: %s", name, outcome.message)
        return not isinstance(outcome, Refusal)

    async def _apply_configs(self, name: str, topic: TopicDoc) -> Refusal | None:
        def edit(configs: dict[str, str]) -> None:
            configs.clear()
            configs.update(topic.configs)

        return await self._log_manager.alter_configs(name, edit, validate_only=False)
