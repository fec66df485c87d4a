"""Reconciliation of this broker's topics with the topics of the cluster."""

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
    """The group offsets, as the reconciler uses them."""

    def caught_up_epochs(self) -> dict[int, int]:
        """Return the shards that have deleted all offsets of deleted topics, with their epochs."""


class TopicReconciler:
    """Applies the topics of the cluster to this broker's disk.

    Every broker stores the whole topic catalogue, but only its own partitions. Groups must delete
    their offsets of deleted topics before this broker reports to the others that it applied the
    deletion.
    """

    def __init__(
        self, log_manager: LogManager, broker_id: int, groups: ShardOffsetsCleaner
    ) -> None:
        self._log_manager = log_manager
        self._broker_id = broker_id
        self._groups = groups
        self._lock = asyncio.Lock()
        self._reset(None)
        self._strays: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def _reset(self, topics: SharedTopics | None) -> None:
        """Reset what was published and deleted: it is valid for one session only."""
        self._topics = topics
        self._applied = AppliedDoc()
        self._published: AppliedDoc | None = None
        self._reserved_names: dict[str, str] = {}  # id to name of deleted topics
        # ids in _reserved_names for which offsets have been deleted
        self._cleaned_ids: set[str] = set()

    async def reconcile(
        self, topics: SharedTopics, changed: Callable[[], None], *, is_first: bool = False
    ) -> None:
        """Apply the current topics of the cluster.

        The work continues even if the caller is cancelled: a tombstone must not be removed before
        the deletion is on the disk.

        Raises:
            ForeignDataError: at the start, the disk has partitions of a topic that the cluster
                neither has nor has deleted.
        """
        work = self._reconcile(topics, changed, is_first=is_first)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Retrieve the exception: the caller may have been cancelled.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        # Not `asyncio.shield`: on Python 3.14, it logs the exception after a cancellation.
        await asyncio.wait({task})
        task.result()

    async def wait_idle(self) -> None:
        """Return once no work is in progress; call it after the session has ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _reconcile(
        self, topics: SharedTopics, changed: Callable[[], None], *, is_first: bool
    ) -> None:
        async with self._lock:
            await topics.catch_up(changed)
            # Clients of this broker may change the topics during the reconciliation.
            version, wanted = topics.version, dict(topics.topics)
            if self._topics is not topics:
                self._reset(topics)
            if self._applied.value != version:
                is_removed = await self._remove_deleted(topics, wanted, is_first=is_first)
                if is_removed:
                    self._applied = replace(self._applied, forgot=version)
                done = [await self._apply(*each) for each in wanted.items()]
                if is_removed and all(done):  # else it is tried again soon
                    self._applied = replace(self._applied, value=version)
            # Even without a change: shards may have been loaded since.
            applied = replace(self._applied, shards=self._groups.caught_up_epochs())
            if applied != self._published and await topics.publish_applied(applied):
                self._published = applied
            if self._reserved_names:
                await self._release_names(topics)

    async def _remove_deleted(
        self, topics: SharedTopics, wanted: Mapping[str, TopicDoc], *, is_first: bool
    ) -> bool:
        """Remove topics that the cluster has deleted; return True if all of them are removed."""
        gone = await self._deleted_elsewhere(topics, wanted)
        self._delete_offsets(gone)
        deleted = set(await topics.tombstones())
        removed: dict[str, str] = {}
        is_done = True
        for local_topic in self._log_manager.topics():
            topic_id = local_topic.topic.topic_id.hex()
            known = wanted.get(local_topic.name)
            if known is not None and known.id == topic_id:
                continue
            if local_topic.partitions and topic_id not in deleted:
                self._report_stray(local_topic, is_first=is_first)
            elif isinstance(await self._log_manager.delete(local_topic.name), Refusal):
                is_done = False
            else:
                removed[topic_id] = local_topic.name
        self._delete_offsets(removed)
        if gone or removed:
            await self._groups.wait_durable()
        for topic_id in sorted(deleted - {topic.id for topic in wanted.values()}):
            if self._log_manager.topic_by_id(bytes.fromhex(topic_id)) is None:
                await topics.remove_tombstone(topic_id)
        return is_done

    async def _deleted_elsewhere(
        self, topics: SharedTopics, wanted: Mapping[str, TopicDoc]
    ) -> dict[str, str]:
        """Return deleted topics that are not on this disk but may have offsets in groups.

        This broker may never have seen such a topic, but a shard that it took over may have offsets
        for it. They are deleted now: when the tombstone is removed, a new topic can have the name.
        Shards that are taken over later delete them when they are loaded.
        """
        self._reserved_names = await topics.reserved_topics()
        self._cleaned_ids &= self._reserved_names.keys()
        # A topic on this disk accepts commits until it is removed, so it is handled there. A wanted
        # topic was deleted just now and is handled by the next call. If a topic were ever created
        # while a tombstone for its name exists, the offsets could belong to the new topic on other
        # brokers.
        kept = {local_topic.name for local_topic in self._log_manager.topics()} | wanted.keys()
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
        """Release the names of deleted topics if the broker that deleted them could not.

        That broker may have failed or been slow. All brokers try, even at the same time: the last
        one to publish its deletion finds that all have. Brokers that are down publish nothing.
        """
        left = await topics.release_names()
        self._reserved_names = {
            key: name for key, name in self._reserved_names.items() if name in left
        }

    def _report_stray(self, local_topic: LocalTopic, *, is_first: bool) -> None:
        story = (
            f"topic {local_topic.name} is on this broker's disk, but the cluster neither has it "
            "nor has deleted it. ZooKeeper may have been restored from an old backup: restore a "
            "newer one, or start the broker with an empty --data-dir"
        )
        if is_first:
            raise ForeignDataError(story)
        if local_topic.name not in self._strays:
            log.error("%s", story)
            self._strays.add(local_topic.name)

    async def _apply(self, name: str, topic: TopicDoc) -> bool:
        """Create or change a topic; return True if it now matches the cluster's definition."""
        local_topic = self._log_manager.topic(name)
        outcome: LocalTopic | Refusal | None = None
        if local_topic is None:
            outcome = await self._log_manager.create(
                name,
                len(topic.brokers),
                topic.configs,
                topic_id=bytes.fromhex(topic.id),
                brokers=topic.brokers,
            )
        elif local_topic.topic.topic_id.hex() != topic.id:
            return True  # a stray topic uses the name and has been reported
        else:
            if len(topic.brokers) > local_topic.partition_count:
                outcome = await self._log_manager.add_partitions(
                    name, len(topic.brokers), topic.brokers
                )
            if not isinstance(outcome, Refusal) and topic.configs != local_topic.topic.configs:
                outcome = await self._apply_configs(name, topic)
        if isinstance(outcome, Refusal):
            log.error("change of topic %s not applied: %s", name, outcome.message)
        return not isinstance(outcome, Refusal)

    async def _apply_configs(self, name: str, topic: TopicDoc) -> Refusal | None:
        def edit(configs: dict[str, str]) -> None:
            configs.clear()
            configs.update(topic.configs)

        return await self._log_manager.alter_configs(name, edit, validate_only=False)
