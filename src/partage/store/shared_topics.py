"""The topics that all brokers of a cluster agree on.

Each change is one transaction that also raises the version of the node ``topics``: so changes have
an order, whoever decides on one has seen all before it, and everybody hears of it by one watch. A
deleted topic leaves a tombstone for each broker that holds partitions of it: nothing is removed
from a disk merely because ZooKeeper does not know it. And it leaves a grave, as long as groups may
have offsets of it (`forgetting`): until then nothing is made under its name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from partage.store.forgetting import Unforgotten, graves, release
from partage.store.tree import (
    AppliedDoc,
    ForeignData,
    TombstoneDoc,
    TopicDoc,
    TopicsDoc,
    Tree,
    buried,
    decode,
    encode,
)
from partage.store.zookeeper import (
    Changed,
    Create,
    Delete,
    InDoubt,
    Operation,
    Refused,
    Session,
    SetData,
    Why,
    settle,
    surely,
)

_RECENT_MAX: Final = 100
_EXPECTED: Final = (Why.VERSION, Why.EXISTS, Why.MISSING)


class SharedTopics:
    """The topics as of the last change that was read: ``version`` counts them."""

    def __init__(self, session: Session, tree: Tree, broker_id: int) -> None:
        self.topics: dict[str, TopicDoc] = {}
        self.version = -1
        self._recent = TopicsDoc()
        self._session = session
        self._tree = tree
        self._broker_id = broker_id

    # Reading.

    async def refresh(self, changed: Changed | None = None) -> None:
        """Read what has changed; ``changed`` is called at the next change.

        Raises `ForeignData`, `InDoubt` and `SessionOver`.
        """
        tree, session = self._tree, self._session
        node = await session.read(tree.topics, changed)
        if node is None:
            raise ForeignData(f"{tree.topics} is missing in ZooKeeper")
        if node.version <= self.version:
            return
        doc = decode(tree.topics, node.data, TopicsDoc)
        missed = node.version - self.version
        if self.version >= 0 and missed <= len(doc.recent):
            names = sorted(set(doc.recent[-missed:]))
        else:
            names = sorted({*self.topics, *await session.children(tree.topics)})
        paths = [tree.topic(name) for name in names]
        nodes = await session.read_all(paths)
        if node.version <= self.version:
            return  # somebody else here has read this, or something newer, meanwhile
        for name, path, found in zip(names, paths, nodes, strict=True):
            if found is None:
                self.topics.pop(name, None)
            else:
                self.topics[name] = decode(path, found.data, TopicDoc)
        self.version, self._recent = node.version, doc

    async def catch_up(self, changed: Changed) -> None:
        """`refresh`, again until it succeeds. Raises `ForeignData` and `SessionOver`."""
        await surely(self._session, lambda: self.refresh(changed))

    def partition_counts(self) -> dict[int, int]:
        """How many partitions each broker holds."""
        counts: dict[int, int] = {}
        for topic in self.topics.values():
            for broker in topic.brokers:
                counts[broker] = counts.get(broker, 0) + 1
        return counts

    # Changing.

    async def put(
        self, name: str, decide: Callable[[Mapping[str, TopicDoc]], TopicDoc | None], nonce: str
    ) -> bool:
        """Create a topic, or change it. ``decide`` gives what it shall be, in view of all others,
        None to leave everything as it is; it is asked again where somebody else was quicker.
        ``nonce`` is unique. Whether something was changed.

        Raises `Unforgotten` where it would be created under the name of one that groups may still
        have offsets of, `ForeignData` and `SessionOver`.
        """
        await self._know()
        while True:
            version = self.version
            # Whoever deletes a topic of this name after this look raises the version.
            is_buried = name not in self.topics and name in await self.unforgotten()
            if self.version != version:
                continue
            topic = decide(self.topics)
            if topic is None:
                return False
            path = self._tree.topic(name)
            content = encode(topic)
            operation: Operation = SetData(path, content)
            if is_buried:
                raise Unforgotten(name)
            if name not in self.topics:
                operation = Create(path, content)
            if await self._is_changed(name, topic, [operation], nonce):
                return True

    async def delete(self, name: str, nonce: str) -> bool:
        """Delete a topic, and leave tombstones of it, and a grave; whether there was one.

        Raises `ForeignData` and `SessionOver`.
        """
        await self._know()
        while True:
            topic = self.topics.get(name)
            if topic is None:
                return False
            holders = sorted(set(topic.brokers))
            stones = [self._tree.tombstone(topic.id, broker) for broker in holders]
            content = encode(TombstoneDoc(name=name, version=self.version + 1))
            operations: list[Operation] = [Delete(self._tree.topic(name))]
            operations += [
                Create(stone, content) for stone in (*stones, self._tree.grave(topic.id))
            ]
            if await self._is_changed(name, None, operations, nonce):
                return True

    async def _know(self) -> None:
        """Read the topics if they never were: nothing can be compared with what is not known."""
        if self.version < 0:
            await surely(self._session, self.refresh)

    async def _is_changed(
        self, name: str, topic: TopicDoc | None, operations: Sequence[Operation], nonce: str
    ) -> bool:
        """Try a change on top of the version that is known; if that is old, read the newer."""
        path, version = self._tree.topics, self.version
        recent = TopicsDoc(
            recent=(*self._recent.recent, name)[-_RECENT_MAX:],
            nonces=(*self._recent.nonces, nonce)[-_RECENT_MAX:],
        )

        async def has_happened() -> bool:
            node = await self._session.read(path)  # others may have come after it
            return node is not None and nonce in decode(path, node.data, TopicsDoc).nonces

        touch = SetData(path, encode(recent), version)
        try:
            await settle(self._session, [touch, *operations], has_happened)
        except Refused as refused:
            if refused.why not in _EXPECTED:
                raise
            await surely(self._session, self.refresh)
            return False
        if self.version == version:  # else it was read meanwhile, and perhaps what came after it
            self.version, self._recent = version + 1, recent
            self.topics.pop(name, None)
            if topic is not None:
                self.topics[name] = topic
        return True

    # Tombstones.

    async def tombstones(self) -> list[str]:
        """The ids of deleted topics of which this broker still has partitions.

        Raises `ForeignData` and `SessionOver`.
        """
        parent, mine = self._tree.tombstones, f".{self._broker_id}"
        names = await surely(self._session, lambda: self._session.children(parent))
        return [buried(parent, name) for name in names if name.endswith(mine)]

    async def bury(self, topic_id: str) -> None:
        """This broker has removed its partitions of a deleted topic."""
        path = self._tree.tombstone(topic_id, self._broker_id)
        try:
            await self._session.transact([Delete(path)])
        except InDoubt:
            await self._session.connected()  # if it is there still, it is met again
        except Refused as refused:
            if refused.why is not Why.MISSING:
                raise

    # What groups have to forget.

    async def graves(self) -> dict[str, str]:
        """The names of deleted topics that groups may have offsets of, by their ids.

        Raises `ForeignData` and `SessionOver`.
        """
        found = await graves(self._session, self._tree)
        return {topic_id: grave.name for topic_id, grave in found.items()}

    async def unforgotten(self) -> set[str]:
        """The names alone. Raises as `graves`."""
        return set((await self.graves()).values())

    async def release(self) -> set[str]:
        """Let names be used again that no group has offsets of; the others. Raises as `release`."""
        return await release(self._session, self._tree)

    # Who has come how far.

    async def tell_applied(self, applied: AppliedDoc) -> bool:
        """Tell how far this broker has come; whether that went well, else it has to be repeated."""
        path, content = self._tree.applied_by(self._broker_id), encode(applied)
        node = await surely(self._session, lambda: self._session.read(path))
        mine = node is not None and node.session == self._session.session_id
        operations: list[Operation] = [SetData(path, content)]
        if not mine:
            # An earlier session's goes when that ends, and must not take this word with it.
            operations = [] if node is None else [Delete(path)]
            operations.append(Create(path, content, is_ephemeral=True))
        with contextlib.suppress(Refused):  # the earlier one ends just now
            await self._session.transact(operations)
            return True
        return False

    async def is_applied_by(self, brokers: Sequence[int], version: int) -> bool:
        """Whether all of these brokers have come to this version."""
        paths = [self._tree.applied_by(broker) for broker in brokers]
        nodes = await self._session.read_all(paths)
        return all(
            node is not None and decode(path, node.data, AppliedDoc).value >= version
            for path, node in zip(paths, nodes, strict=True)
        )
