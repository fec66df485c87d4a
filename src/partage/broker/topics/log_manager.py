"""The topics of this broker and their local partitions, from start-up to deletion.

A change of the catalogue is decided on the loop and made durable in a thread, one change at a time,
before any request sees it. If that fails, the change is rolled back. If it cannot be rolled back,
the broker stops, because its catalogue is ahead of its file.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from weakref import WeakValueDictionary

from partage.broker.clock import Clock
from partage.broker.ids import RANDOM_IDS, IdSource
from partage.broker.topics.log_loader import LogLoader
from partage.broker.topics.log_writer import LogWriter
from partage.broker.topics.partition import Partition
from partage.broker.topics.recompressor import Recompressor
from partage.log.catalogue.topic_catalogue import (
    CatalogueChange,
    TopicCatalogue,
    TopicDefinition,
    apply_change,
)
from partage.log.catalogue.topic_config import check_configs
from partage.log.catalogue.topic_names import INTERNAL_TOPICS, check_topic_name
from partage.log.disk import Disk
from partage.log.errors import DamagedFileError
from partage.log.io import perform_step
from partage.log.results import DurableStep, Refusal
from partage.model.errors import ErrorCode
from partage.model.settings import BrokerSettings
from partage.store.group_events import TOPIC as EVENTS_TOPIC
from partage.store.group_events import TOPIC_CONFIGS as EVENTS_CONFIGS
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.store.shard_log import TOPIC_CONFIGS as OFFSETS_CONFIGS

log = logging.getLogger(__name__)


class LocalTopic:
    """A topic, and its partitions on this broker by index."""

    def __init__(self, topic: TopicDefinition, partitions: dict[int, Partition]) -> None:
        self.topic = topic
        self.partitions = partitions

    @property
    def name(self) -> str:
        """Name of the topic."""
        return self.topic.name

    @property
    def partition_count(self) -> int:
        """Number of partitions on all brokers."""
        return self.topic.partition_count


class LogManager:
    """All topics; call `open` before anything else.

    Args:
        disk: the data directory.
        writer: writes all logs.
        clock: the broker's clock.
        settings: the broker settings.
        on_fatal: called if the catalogue is ahead of its file.
        has_offsets_topic: whether this broker has the partitions of ``__consumer_offsets``. In a
            cluster, ZooKeeper stores them.
        ids: draws the ids of new topics.
    """

    def __init__(
        self,
        disk: Disk,
        writer: LogWriter,
        clock: Clock,
        settings: BrokerSettings,
        on_fatal: Callable[[BaseException], None],
        *,
        has_offsets_topic: bool = True,
        ids: IdSource = RANDOM_IDS,
    ) -> None:
        self.ids = ids
        self.settings = settings
        self._has_offsets_topic = has_offsets_topic
        #: Called with topic and index of a partition after a failed write.
        self.on_partition_failed: Callable[[str, int], None] = lambda topic, index: None
        #: Called with a topic that was created, deleted, or got more partitions.
        self.on_topic_changed: Callable[[str], None] = lambda topic: None
        self._disk = disk
        self._writer = writer
        self._clock = clock
        self._on_fatal = on_fatal
        self._change_lock = asyncio.Lock()
        # by the position of the checkpoint
        self._step_locks = WeakValueDictionary[int, asyncio.Lock]()
        self._catalogue = TopicCatalogue()
        self._recompressor = Recompressor()
        self._loader = LogLoader(
            disk,
            writer,
            self._recompressor,
            clock,
            settings,
            lambda topic, index: self.on_partition_failed(topic, index),
        )
        self._topics: dict[str, LocalTopic] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._undurable_deletions: set[str] = set()

    async def open(self) -> None:
        """Open all topics; create ``__consumer_offsets`` if it is needed and missing.

        Raises:
            DamagedFileError, DamagedLogError: acknowledged bytes are missing or changed.
            OSError: the disk fails.
        """
        await asyncio.to_thread(self._load)
        if self._has_offsets_topic and OFFSETS_TOPIC not in self._topics:
            created = await self.create(
                OFFSETS_TOPIC, self.settings.offsets_partitions, OFFSETS_CONFIGS
            )
            if isinstance(created, Refusal):
                raise OSError(created.message)

    def use_settings(self, settings: BrokerSettings) -> None:
        """Use other settings from now on, also the new defaults of topic configs."""
        self.settings = settings
        self._loader.use_settings(settings)
        for local_topic in self._topics.values():
            self._configure(local_topic.topic, local_topic.partitions.values())

    def _configure(self, topic: TopicDefinition, partitions: Iterable[Partition]) -> None:
        """Set the configs of partitions: they may have changed since a thread opened these."""
        config = self._loader.log_config(topic)
        for partition in partitions:
            partition.log.config = config

    def cancel_loading(self) -> None:
        """Stop opening partitions. Partitions that are being opened end as after a crash."""
        self._loader.cancel()

    def _load(self) -> None:
        me = self.settings.node_id
        self._catalogue = TopicCatalogue.load(self._disk, me)
        self._loader.load_checkpoints(self._catalogue)
        for topic in self._catalogue:
            opened = self._loader.open(topic, topic.partitions_on(me))
            self._topics[topic.name] = LocalTopic(topic, opened)

    async def stop_recompression(self) -> None:
        """Drop produced batches that wait to be recompressed; call it before the writer ends."""
        await self._recompressor.close()

    async def close(self) -> None:
        """Write checkpoints for a quick next start; the writer must be drained."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        partitions = [
            one for local_topic in self._topics.values() for one in local_topic.partitions.values()
        ]
        steps = [one.log.close() for one in partitions if one.failure is None]
        perform_step(self._disk, *steps)

    def topics(self) -> list[LocalTopic]:
        """Return all topics."""
        return list(self._topics.values())

    def topic(self, name: str) -> LocalTopic | None:
        """Return a topic by name, or None."""
        return self._topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> LocalTopic | None:
        """Return a topic by id, or None."""
        topic = self._catalogue.by_id(topic_id)
        return None if topic is None else self._topics.get(topic.name)

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic by its id, or None."""
        topic = self.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def topic_id(self, name: str) -> bytes | None:
        """Return the id of a topic by its name, or None."""
        local_topic = self._topics.get(name)
        return None if local_topic is None else local_topic.topic.topic_id

    def partition(self, name: str, index: int) -> Partition | None:
        """Return a local partition, or None."""
        local_topic = self._topics.get(name)
        return None if local_topic is None else local_topic.partitions.get(index)

    def missing_partition_error(self, name: str, index: int) -> ErrorCode:
        """Return the error for a partition that is not local: it does not exist, or is on another
        broker.
        """
        if self.has_partition(name, index):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def wall_ms(self) -> int:
        """Return the time for records."""
        return self._clock.wall_ms()

    def has_partition(self, name: str, index: int) -> bool:
        """True if the partition exists, on this or another broker."""
        local_topic = self._topics.get(name)
        return local_topic is not None and 0 <= index < local_topic.topic.partition_count

    @staticmethod
    def is_internal(name: str) -> bool:
        """True if the topic is internal."""
        return name in INTERNAL_TOPICS

    async def create(
        self,
        name: str,
        partition_count: int,
        configs: Mapping[str, str],
        *,
        topic_id: bytes | None = None,
        brokers: Sequence[int] = (),
    ) -> LocalTopic | Refusal:
        """Create a topic, with the id and the brokers that a cluster has agreed on, if it has."""
        async with self._change_lock:
            change = self._catalogue.create(
                name, topic_id or self.ids.fresh_topic_id(), partition_count, configs, brokers
            )
            if isinstance(change, Refusal):
                return change
            partitions = await self._apply(
                change, change.topic.partitions_on(self.settings.node_id)
            )
            if isinstance(partitions, Refusal):
                return partitions
            local_topic = self._topics[name] = LocalTopic(change.topic, partitions)
            self.on_topic_changed(name)
            return local_topic

    async def auto_create(self, name: str) -> LocalTopic | Refusal:
        """Create a topic that a client requested metadata for, with the default partition count."""
        if name in self._topics:
            return self._topics[name]
        if name == EVENTS_TOPIC and self.settings.group_events:
            # one partition: the events must be ordered
            created = await self.create(name, 1, EVENTS_CONFIGS)
        elif self.is_internal(name):
            return Refusal(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{name!r} is an internal topic: clients cannot create or delete it",
            )
        else:
            created = await self.create(name, self.settings.partitions_default, {})
        if isinstance(created, Refusal) and created.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return self._topics[name]  # created by another request
        return created

    def check_create(
        self, name: str, partition_count: int, configs: Mapping[str, str | None]
    ) -> Refusal | None:
        """Return the reason why a topic cannot be created, or None."""
        return self._catalogue.check_create(name, partition_count, configs)

    @staticmethod
    def check_name(name: str) -> Refusal | None:
        """Return the reason why a topic name is invalid, or None."""
        fault = check_topic_name(name)
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, fault) if fault else None

    def is_being_deleted(self, name: str) -> bool:
        """True if a topic was removed, but the deletion is not durable yet."""
        return name in self._undurable_deletions

    async def delete(self, name: str) -> LocalTopic | Refusal:
        """Delete a topic; concurrent reads and writes fail."""
        async with self._change_lock:
            if self.is_internal(name):
                return Refusal(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"{name!r} is an internal topic: clients cannot create or delete it",
                )
            change = self._catalogue.delete(name)
            if isinstance(change, Refusal):
                return change
            local_topic = self._topics.pop(name)
            self._undurable_deletions.add(name)
            self.on_topic_changed(name)
            await asyncio.gather(
                *[partition.retire() for partition in local_topic.partitions.values()]
            )
            await self._apply(change, ())
            self._undurable_deletions.remove(name)
            self._loader.release_checkpoints(change.topic)
            await asyncio.to_thread(self._remove, change.removals)
            return local_topic

    async def add_partitions(
        self, name: str, partition_count: int, brokers: Sequence[int] = ()
    ) -> LocalTopic | Refusal:
        """Grow a topic to ``partition_count`` partitions."""
        async with self._change_lock:
            change = self._catalogue.add_partitions(name, partition_count, brokers)
            if isinstance(change, Refusal):
                return change
            local_topic = self._topics[name]
            held = change.topic.partitions_on(self.settings.node_id)
            added = await self._apply(change, [i for i in held if i not in local_topic.partitions])
            if isinstance(added, Refusal):
                return added
            local_topic.topic = change.topic
            local_topic.partitions |= added
            self.on_topic_changed(name)
            return local_topic

    def check_add_partitions(self, name: str, partition_count: int) -> Refusal | None:
        """Return the reason why a topic cannot grow to ``partition_count`` partitions, or None."""
        return self._catalogue.check_add_partitions(name, partition_count)

    async def alter_configs(
        self, name: str, edit: Callable[[dict[str, str]], Refusal | None], *, validate_only: bool
    ) -> Refusal | None:
        """Change a topic's configs with ``edit``, without concurrent changes."""
        async with self._change_lock:
            local_topic = self._topics.get(name)
            if local_topic is None:
                return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic does not exist")
            configs = dict(local_topic.topic.configs)
            refusal = edit(configs) or check_configs(configs)
            if refusal is not None or validate_only:
                return refusal
            change = self._catalogue.set_configs(name, configs)
            if isinstance(change, Refusal):
                return change
            applied = await self._apply(change, ())
            if isinstance(applied, Refusal):
                return applied
            local_topic.topic = change.topic
            self._configure(change.topic, local_topic.partitions.values())
            return None

    async def _apply(
        self, change: CatalogueChange, new_partitions: Iterable[int]
    ) -> dict[int, Partition] | Refusal:
        """Make a change durable, then open its new partitions.

        Returns:
            The new partitions, or a KAFKA_STORAGE_ERROR refusal after a write that failed and was
            rolled
            back.
        """

        def apply() -> dict[int, Partition]:
            apply_change(self._disk, change)
            return self._loader.open(change.topic, new_partitions)

        try:
            opened = await asyncio.to_thread(apply)
        except OSError as error:
            if await self._try_roll_back(change):
                log.error("change of topic %s failed: %s", change.topic.name, error)
                message = f"the topic catalogue cannot be written: {error}"
                return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, message)
            self._on_fatal(error)
            raise
        self._configure(change.topic, opened.values())
        return opened

    async def _try_roll_back(self, change: CatalogueChange) -> bool:
        """Load the catalogue from its file; return True if it does not contain the change."""
        if change.renames:
            return False  # its partitions can no longer be written to
        try:
            catalogue = await asyncio.to_thread(
                TopicCatalogue.load, self._disk, self.settings.node_id
            )
        except (OSError, DamagedFileError):
            return False
        if catalogue.get(change.topic.name) == change.topic:
            return False
        self._catalogue = catalogue
        return True

    async def reopen(self, name: str, index: int) -> Partition:
        """Open a partition again after a failed write; only the bytes on disk count."""
        async with self._change_lock:
            return await self._reopen(self._topics[name], index)

    async def reopen_failed(self, name: str, index: int) -> bool:
        """Reopen a partition if it exists and has failed; return True if it was reopened."""
        async with self._change_lock:
            partition = self.partition(name, index)
            if partition is None or partition.failure is None:
                return False
            await self._reopen(self._topics[name], index)
            return True

    async def _reopen(self, local_topic: LocalTopic, index: int) -> Partition:
        await local_topic.partitions[index].retire(ErrorCode.KAFKA_STORAGE_ERROR, "reopened")
        opened = await asyncio.to_thread(self._loader.open, local_topic.topic, [index])
        self._configure(local_topic.topic, opened.values())
        local_topic.partitions |= opened
        return local_topic.partitions[index]

    async def run_step(self, step: DurableStep) -> None:
        """Run a step in a thread, after all earlier writes and earlier steps of the same partition.

        The caller removes the files that the step makes obsolete.

        Raises:
            OSError: the disk fails.
        """
        # The checkpoint that was created last must be written last.
        async with self._step_locks.setdefault(step.checkpoint.position, asyncio.Lock()):
            await self._writer.barrier()
            await asyncio.to_thread(perform_step, self._disk, step)

    def submit_step(self, step: DurableStep, done: Callable[[OSError | None], None]) -> None:
        """Run a step in the background, and call ``done`` on the loop."""

        async def performing() -> None:
            try:
                await self.run_step(step)
            except OSError as error:
                log.error("change of a partition log failed: %s", error)
                done(error)
                return
            done(None)

        task = asyncio.get_running_loop().create_task(performing())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._disk.remove(path)
