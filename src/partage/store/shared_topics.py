"""The topics of a cluster, on which all brokers agree.

Each change is one transaction that also raises the version of the node ``topics``. So changes are
ordered, each decision is based on all earlier changes, and one watch notifies every broker.

A deleted topic leaves a tombstone for each broker with partitions of it. A broker never removes
files only because a topic is missing in ZooKeeper. Another tombstone reserves the name while groups
may hold offsets for it (`topic_tombstones`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from partage.store.topic_tombstones import (
    TopicNameReservedError,
    groups_tombstones,
    remove_obsolete,
)
from partage.store.zk_schema import (
    AppliedDoc,
    ForeignDataError,
    TombstoneDoc,
    TopicDoc,
    TopicsDoc,
    ZkPaths,
    decode,
    encode,
    parse_topic_id,
)
from partage.store.zookeeper import (
    ChangeCallback,
    Create,
    Delete,
    InDoubtError,
    Operation,
    RefusalReason,
    RefusedError,
    Session,
    SetData,
    retry_read,
    transact_once,
)

_RECENT_MAX: Final = 100
_CONFLICTS: Final = (RefusalReason.VERSION, RefusalReason.EXISTS, RefusalReason.MISSING)


class SharedTopics:
    """The topics as of the last change that was read; ``version`` is the number of changes."""

    def __init__(self, session: Session, paths: ZkPaths, broker_id: int) -> None:
        self.topics: dict[str, TopicDoc] = {}
        self.version = -1
        self._recent = TopicsDoc()
        self._session = session
        self._paths = paths
        self._broker_id = broker_id

    # Reading.

    async def refresh(self, changed: ChangeCallback | None = None) -> None:
        """Read the changes since the last call.

        Args:
            changed: Called once, at the next change.

        Raises:
            ForeignDataError: A node was not written by Partage.
            InDoubtError: The connection was lost.
            SessionEndedError: The session ended.
        """
        paths, session = self._paths, self._session
        node = await session.read(paths.topics, changed)
        if node is None:
            raise ForeignDataError(
                f"{paths.topics} is missing in ZooKeeper; restore it, or use another path"
            )
        if node.version <= self.version:
            return
        doc = decode(paths.topics, node.data, TopicsDoc)
        missed = node.version - self.version
        if self.version >= 0 and missed <= len(doc.recent):
            names = sorted(set(doc.recent[-missed:]))
        else:
            names = sorted({*self.topics, *await session.children(paths.topics)})
        node_paths = [paths.topic(name) for name in names]
        nodes = await session.read_all(node_paths)
        if node.version <= self.version:
            return  # a concurrent refresh has read this version or a newer one
        for name, path, found in zip(names, node_paths, nodes, strict=True):
            if found is None:
                self.topics.pop(name, None)
            else:
                self.topics[name] = decode(path, found.data, TopicDoc)
        self.version, self._recent = node.version, doc

    async def catch_up(self, changed: ChangeCallback) -> None:
        """Refresh, and retry until it succeeds.

        Raises:
            ForeignDataError: A node was not written by Partage.
            SessionEndedError: The session ended.
        """
        await retry_read(self._session, lambda: self.refresh(changed))

    async def read_changes(self) -> None:
        """Refresh, and retry while the connection is lost.

        Raises:
            ForeignDataError: A node was not written by Partage.
            SessionEndedError: The session ended.
        """
        await retry_read(self._session, self.refresh)

    def partition_counts(self) -> dict[int, int]:
        """Return the number of partitions of each broker."""
        counts: dict[int, int] = {}
        for topic in self.topics.values():
            for broker in topic.brokers:
                counts[broker] = counts.get(broker, 0) + 1
        return counts

    # Changes.

    async def put(
        self, name: str, decide: Callable[[Mapping[str, TopicDoc]], TopicDoc | None], nonce: str
    ) -> bool:
        """Create or change a topic.

        Args:
            name: The name of the topic.
            decide: Returns the new topic from all current ones, or None to change nothing. It is
                called again after a concurrent change.
            nonce: A unique string.

        Returns:
            True if the topic was changed.

        Raises:
            TopicNameReservedError: Groups may hold offsets for a deleted topic of this name.
            ForeignDataError: A node was not written by Partage.
            SessionEndedError: The session ended.
        """
        await self._ensure_loaded()
        is_current = False
        while True:
            version = self.version
            # A broker that deletes a topic of this name after this read raises the version.
            is_buried = name not in self.topics and name in await self.reserved_names()
            if self.version != version:
                continue
            topic = decide(self.topics)
            if topic is None and is_current:
                return False
            if topic is None:  # another broker may have changed the topics meanwhile
                await self.read_changes()
                is_current = True
                continue
            path = self._paths.topic(name)
            content = encode(topic)
            operation: Operation = SetData(path, content)
            if is_buried:
                raise TopicNameReservedError(name)
            if name not in self.topics:
                operation = Create(path, content)
            if await self._try_change(name, topic, [operation], nonce):
                return True

    async def delete(self, name: str, nonce: str) -> bool:
        """Delete a topic and leave its tombstones.

        Returns:
            True if the topic existed.

        Raises:
            ForeignDataError: A node was not written by Partage.
            SessionEndedError: The session ended.
        """
        await self._ensure_loaded()
        is_current = False
        while True:
            topic = self.topics.get(name)
            if topic is None and is_current:
                return False
            if topic is None:
                await self.read_changes()
                is_current = True
                continue
            holders = sorted(set(topic.brokers))
            stones = [self._paths.tombstone(topic.id, broker) for broker in holders]
            content = encode(TombstoneDoc(name=name, version=self.version + 1))
            operations: list[Operation] = [Delete(self._paths.topic(name))]
            operations += [
                Create(stone, content)
                for stone in (*stones, self._paths.groups_tombstone(topic.id))
            ]
            if await self._try_change(name, None, operations, nonce):
                return True

    async def _ensure_loaded(self) -> None:
        """Read the topics if they were never read: a change needs a version to compare with."""
        if self.version < 0:
            await self.read_changes()

    async def _try_change(
        self, name: str, topic: TopicDoc | None, operations: Sequence[Operation], nonce: str
    ) -> bool:
        """Try a change of the known version; if that is outdated, refresh and return False."""
        path, version = self._paths.topics, self.version
        recent = TopicsDoc(
            recent=(*self._recent.recent, name)[-_RECENT_MAX:],
            nonces=(*self._recent.nonces, nonce)[-_RECENT_MAX:],
        )

        async def has_happened() -> bool:
            node = await self._session.read(path)  # later changes may follow it
            return node is not None and nonce in decode(path, node.data, TopicsDoc).nonces

        touch = SetData(path, encode(recent), version)
        try:
            await transact_once(self._session, [touch, *operations], has_happened)
        except RefusedError as refused:
            if refused.reason not in _CONFLICTS:
                raise
            await self.read_changes()
            return False
        # otherwise a concurrent refresh has read it, and maybe later changes
        if self.version == version:
            self.version, self._recent = version + 1, recent
            self.topics.pop(name, None)
            if topic is not None:
                self.topics[name] = topic
        return True

    # Tombstones.

    async def tombstones(self) -> list[str]:
        """Return the ids of deleted topics with partitions on this broker.

        Raises:
            ForeignDataError: A node was not written by Partage.
            SessionEndedError: The session ended.
        """
        parent, mine = self._paths.tombstones, f".{self._broker_id}"
        names = await retry_read(self._session, lambda: self._session.children(parent))
        return [parse_topic_id(parent, name) for name in names if name.endswith(mine)]

    async def remove_tombstone(self, topic_id: str) -> None:
        """Remove this broker's tombstone of a topic, after it removed its partitions."""
        path = self._paths.tombstone(topic_id, self._broker_id)
        try:
            await self._session.transact([Delete(path)])
        except InDoubtError:
            # if the node still exists, the next call removes it
            await self._session.wait_connected()
        except RefusedError as refused:
            if refused.reason is not RefusalReason.MISSING:
                raise

    # Reserved names.

    async def reserved_topics(self) -> dict[str, str]:
        """Return the names of deleted topics for which groups may hold offsets, by topic id.

        Raises:
            ForeignDataError: A node was not written by Partage.
            SessionEndedError: The session ended.
        """
        found = await groups_tombstones(self._session, self._paths)
        return {topic_id: grave.name for topic_id, grave in found.items()}

    async def reserved_names(self) -> set[str]:
        """Return the reserved names. Raises as `reserved_topics`."""
        return set((await self.reserved_topics()).values())

    async def release_names(self) -> set[str]:
        """Release the names for which no group can hold offsets, and return the others.

        Raises as `topic_tombstones.remove_obsolete`.
        """
        return await remove_obsolete(self._session, self._paths)

    # Progress of brokers.

    async def publish_applied(self, applied: AppliedDoc) -> bool:
        """Publish how many topic changes this broker has applied.

        Returns:
            True if it was published; otherwise the caller must retry.
        """
        path, content = self._paths.applied_by(self._broker_id), encode(applied)
        node = await retry_read(self._session, lambda: self._session.read(path))
        mine = node is not None and node.session == self._session.session_id
        operations: list[Operation] = [SetData(path, content)]
        if not mine:
            # An earlier session's node is removed when that session ends, so it must not hold this
            # state.
            operations = [] if node is None else [Delete(path)]
            operations.append(Create(path, content, is_ephemeral=True))
        with contextlib.suppress(RefusedError):  # the earlier session ends at this moment
            await self._session.transact(operations)
            return True
        return False

    async def is_applied_by(self, brokers: Sequence[int], version: int) -> bool:
        """True if all of these brokers have applied the topic changes up to ``version``."""
        node_paths = [self._paths.applied_by(broker) for broker in brokers]
        nodes = await self._session.read_all(node_paths)
        return all(
            node is not None and decode(path, node.data, AppliedDoc).value >= version
            for path, node in zip(node_paths, nodes, strict=True)
        )
