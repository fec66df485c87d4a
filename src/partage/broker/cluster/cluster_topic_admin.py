"""Creation, change and deletion of topics for the whole cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from partage.broker.cluster.store_timeout import CHANGE_TIMEOUT_S, with_timeout
from partage.broker.topics.log_manager import LocalTopic, LogManager
from partage.broker.topics.partition import Partition
from partage.broker.topics.topic_admin import ConfigEdit, check_current, request_deadline_s
from partage.log.catalogue.topic_config import check_configs
from partage.log.catalogue.topic_names import find_name_collision
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.store.group_events import TOPIC as EVENTS_TOPIC
from partage.store.group_events import TOPIC_CONFIGS as EVENTS_CONFIGS
from partage.store.placement import place_partitions
from partage.store.shared_topics import SharedTopics
from partage.store.topic_tombstones import TopicNameReservedError
from partage.store.zk_schema import TopicDoc

# for ZooKeeper to answer, in addition to the time until the deadline
_ZOOKEEPER_TIMEOUT_S: Final = 5.0
_APPLY_TIMEOUT_MIN_S: Final = 1.0  # minimum, even after the deadline
_NAME_RETRY_S: Final = 0.1

_NO_SUCH_TOPIC: Final = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic does not exist")


def _not_for_clients(name: str) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"{name!r} is an internal topic: clients cannot create or delete it",
    )


def _name_collision(name: str, other: str) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"topic {name!r} collides with {other!r}: '.' and '_' are treated as equal",
    )


def _name_reserved(name: str) -> Refusal:
    return Refusal(
        ErrorCode.REQUEST_TIMED_OUT,
        f"topic {name!r} was deleted, and a broker that is down or slow may still have committed "
        "offsets for it; retry",
    )


def _not_applied(name: str) -> Refusal:
    return Refusal(
        ErrorCode.REQUEST_TIMED_OUT,
        f"the change of topic {name!r} is stored in ZooKeeper, but this broker has not applied it "
        "yet",
    )


class SharedTopicsAccess(Protocol):
    """The membership, as `ClusterTopicAdmin` uses it."""

    def shared_topics(self) -> SharedTopics:
        """Return the topics as read in the current session."""

    def live_broker_ids(self) -> list[int]:
        """Return the ids of the live brokers."""

    async def apply_changes(self) -> None:
        """Read all changes of topics up to now, and apply them on this broker."""

    async def wait_applied(self) -> None:
        """Return once all live brokers have applied the current topics, or after a timeout."""


class ClusterTopicAdmin:
    """Implements `partage.broker.topics.topic_admin.TopicAdmin` for a cluster."""

    def __init__(self, agreement: SharedTopicsAccess, log_manager: LogManager) -> None:
        self._shared = agreement
        self._log_manager = log_manager
        self._ids = log_manager.ids

    async def create(
        self,
        name: str,
        partition_count: int,
        configs: Mapping[str, str],
        brokers: Sequence[int],
        until_s: float | None = None,
    ) -> LocalTopic | Refusal:
        """Create a topic; by default its partitions are spread over the live brokers."""
        if self._log_manager.is_internal(name):
            return _not_for_clients(name)
        refusal = self._log_manager.check_create(name, partition_count, configs)
        if refusal is not None:
            return refusal
        up, topic_id = self._shared.live_broker_ids(), self._ids.fresh_topic_id().hex()

        def decide(topics: Mapping[str, TopicDoc]) -> TopicDoc | Refusal:
            if name in topics:
                return Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
            if other := find_name_collision(name, topics):
                return _name_collision(name, other)
            counts = self._shared.shared_topics().partition_counts()
            placed = tuple(brokers) or place_partitions(partition_count, up, counts)
            return TopicDoc(id=topic_id, brokers=placed, configs=dict(configs))

        until_s = request_deadline_s() if until_s is None else until_s
        created = await self._change_topic(name, decide, until_s)
        local_topic = self._log_manager.topic(name)
        if local_topic is not None and local_topic.topic.topic_id.hex() == topic_id:
            # created on this broker, even if other brokers take longer than the client waits
            return local_topic
        return created

    async def auto_create(self, name: str) -> LocalTopic | Refusal:
        """Create a topic that a client requested metadata for, with the default partition count.

        The client's next requests wait behind this one, so this method does not wait. If it would
        have to, it returns an error on which clients request metadata again.
        """
        created = await self._auto_create(name)
        if isinstance(created, Refusal) and created.code is ErrorCode.REQUEST_TIMED_OUT:
            return msgspec.structs.replace(created, code=ErrorCode.LEADER_NOT_AVAILABLE)
        return created

    async def _auto_create(self, name: str) -> LocalTopic | Refusal:
        if name == EVENTS_TOPIC and self._log_manager.settings.group_events:
            own = await self.get_or_create_own_partition(name, EVENTS_CONFIGS)
            return (
                own if isinstance(own, Refusal) else self._log_manager.topic(name) or _NO_SUCH_TOPIC
            )
        count = self._log_manager.settings.partitions_default
        created = await self.create(name, count, {}, [], request_deadline_s(0))
        if isinstance(created, Refusal) and created.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            await with_timeout(self._shared.wait_applied, _APPLY_TIMEOUT_MIN_S)
            return self._log_manager.topic(name) or _not_applied(name)  # created by another request
        return created

    async def get_or_create_own_partition(
        self, name: str, configs: Mapping[str, str]
    ) -> Partition | Refusal:
        """Return this broker's partition of a topic in which each broker has one partition.

        A missing partition or topic is created; several brokers may do so at the same time.
        """
        own = self._own_partition(name)
        if own is not None:
            return own
        me, topic_id = (
            self._log_manager.settings.node_id,
            self._ids.fresh_topic_id().hex(),
        )

        def decide(topics: Mapping[str, TopicDoc]) -> TopicDoc | Refusal:
            topic = topics.get(name)
            if topic is not None and me in topic.brokers:  # an earlier try has succeeded
                return Refusal(
                    ErrorCode.TOPIC_ALREADY_EXISTS,
                    f"topic {name!r} already has a partition on this broker",
                )
            if topic is not None:
                return msgspec.structs.replace(topic, brokers=(*topic.brokers, me))
            if other := find_name_collision(name, topics):
                return _name_collision(name, other)
            return TopicDoc(id=topic_id, brokers=(me,), configs=dict(configs))

        put = await self._change_topic(name, decide)
        if isinstance(put, Refusal):
            if put.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                return put
            await with_timeout(self._shared.wait_applied)
        missing = Refusal(
            ErrorCode.KAFKA_STORAGE_ERROR, f"this broker has no partition of topic {name!r}"
        )
        return self._own_partition(name) or missing

    def _own_partition(self, name: str) -> Partition | None:
        local_topic = self._log_manager.topic(name)
        if local_topic is None or not local_topic.partitions:
            return None
        return local_topic.partitions[min(local_topic.partitions)]

    async def delete(self, name: str) -> LocalTopic | Refusal:
        """Delete a topic in the whole cluster."""
        if self._log_manager.is_internal(name):
            return _not_for_clients(name)
        refusal = await check_current(lambda: self._check_exists(name), self.catch_up)
        local_topic = self._log_manager.topic(name)
        if refusal is not None or local_topic is None:
            return refusal or _NO_SUCH_TOPIC

        async def deleting() -> bool:
            is_deleted = await self._shared.shared_topics().delete(name, self._ids.fresh_nonce())
            await self._shared.wait_applied()
            await self._shared.shared_topics().release_names()
            return is_deleted

        is_deleted = await with_timeout(deleting)
        if isinstance(is_deleted, Refusal):
            return is_deleted
        return local_topic if is_deleted else _NO_SUCH_TOPIC

    def _check_exists(self, name: str) -> Refusal | None:
        return None if self._log_manager.topic(name) is not None else _NO_SUCH_TOPIC

    async def catch_up(self) -> Refusal | None:
        """Apply the changes in ZooKeeper up to now; return why that failed."""
        result = await with_timeout(self._shared.apply_changes)
        return result if isinstance(result, Refusal) else None

    async def wait_offsets_deleted(self) -> None:
        """Return at once: each broker waits for this before it reports a deletion as applied."""

    async def add_partitions(
        self, name: str, partition_count: int, brokers: Sequence[int]
    ) -> LocalTopic | Refusal:
        """Grow a topic to ``partition_count`` partitions."""
        refusal = self._log_manager.check_add_partitions(name, partition_count)
        if refusal is not None:
            return refusal
        up = self._shared.live_broker_ids()

        def decide(topics: Mapping[str, TopicDoc]) -> TopicDoc | Refusal:
            topic = topics.get(name)
            if topic is None:
                return _NO_SUCH_TOPIC
            added = partition_count - len(topic.brokers)
            if added <= 0:
                return Refusal(
                    ErrorCode.INVALID_PARTITIONS,
                    f"topic {name!r} has {len(topic.brokers)} partitions: it can only grow, not "
                    f"change to {partition_count}",
                )
            if brokers and len(brokers) != added:  # another request has added partitions
                return Refusal(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"topic {name} would get {added} new partitions, but {len(brokers)} are "
                    "assigned to brokers",
                )
            counts = self._shared.shared_topics().partition_counts()
            placed = tuple(brokers) or place_partitions(added, up, counts)
            return msgspec.structs.replace(topic, brokers=topic.brokers + placed)

        return await self._change_topic(name, decide)

    async def alter_configs(
        self, name: str, edit: ConfigEdit, *, validate_only: bool
    ) -> Refusal | None:
        """Change a topic's configs, based on the latest ones."""
        refusal = await check_current(lambda: self._check_exists(name), self.catch_up)
        if refusal is not None:
            return refusal

        def decide(topics: Mapping[str, TopicDoc]) -> TopicDoc | Refusal:
            topic = topics.get(name)
            if topic is None:
                return _NO_SUCH_TOPIC
            configs = dict(topic.configs)
            refusal = edit(configs) or check_configs(configs)
            return refusal or msgspec.structs.replace(topic, configs=configs)

        if validate_only:
            decided = decide(self._shared.shared_topics().topics)
            return decided if isinstance(decided, Refusal) else None
        altered = await self._change_topic(name, decide)
        return altered if isinstance(altered, Refusal) else None

    async def _change_topic(
        self,
        name: str,
        decide: Callable[[Mapping[str, TopicDoc]], TopicDoc | Refusal],
        until_s: float | None = None,
    ) -> LocalTopic | Refusal:
        """Store a change in ZooKeeper, and return once this broker has applied it.

        Args:
            name: the topic.
            decide: returns the new definition for the current topics, or the reason for a refusal.
            until_s: the client's deadline for the creation of a topic, by the loop's clock.
        """
        refused: list[Refusal] = []

        def deciding(topics: Mapping[str, TopicDoc]) -> TopicDoc | None:
            decided = decide(topics)
            if isinstance(decided, Refusal):
                refused.append(decided)
                return None
            return decided

        left_s = None if until_s is None else until_s - asyncio.get_running_loop().time()
        patience_s = CHANGE_TIMEOUT_S if left_s is None else max(left_s, 0) + _ZOOKEEPER_TIMEOUT_S
        is_put = await with_timeout(lambda: self._write_topic(name, deciding, until_s), patience_s)
        if isinstance(is_put, Refusal):
            return is_put
        if not is_put:
            return refused[-1]
        if isinstance(
            await with_timeout(self._shared.wait_applied, _apply_timeout_s(until_s)), Refusal
        ):
            return _not_applied(name)
        return self._log_manager.topic(name) or _NO_SUCH_TOPIC

    async def _write_topic(
        self,
        name: str,
        decide: Callable[[Mapping[str, TopicDoc]], TopicDoc | None],
        until_s: float | None,
    ) -> bool | Refusal:
        """Write the change once no group can have offsets for an earlier topic of that name."""
        while True:
            topics = self._shared.shared_topics()
            try:
                return await topics.put(name, decide, self._ids.fresh_nonce())
            except TopicNameReservedError:
                if name not in await topics.release_names():
                    continue
                if until_s is None or asyncio.get_running_loop().time() >= until_s:
                    return _name_reserved(name)
                await asyncio.sleep(_NAME_RETRY_S)


def _apply_timeout_s(until_s: float | None) -> float:
    """Return how long to wait until this broker has applied a stored change."""
    if until_s is None:
        return CHANGE_TIMEOUT_S
    return max(until_s - asyncio.get_running_loop().time(), _APPLY_TIMEOUT_MIN_S)


class BrokerEventsPartition:
    """This broker's partition of ``__group_events`` in a cluster."""

    def __init__(self, changes: ClusterTopicAdmin) -> None:
        self._topic_admin = changes

    async def get_or_create(self) -> Partition | Refusal:
        """Return the partition; create it if it is missing."""
        return await self._topic_admin.get_or_create_own_partition(EVENTS_TOPIC, EVENTS_CONFIGS)
