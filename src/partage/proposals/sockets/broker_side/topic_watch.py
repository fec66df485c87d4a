"""The coordinator's watches on topics and their partitions (section 5, steps 2 and 3)."""

from __future__ import annotations

import asyncio
from functools import partial

from partage.proposals.sockets.broker_side.zookeeper_nodes import ZooKeeperNodes


class TopicWatch:
    """Watches ``/brokers/topics`` and each topic below it, in one session.

    The document says that topics are never deleted. An operator can do it, and create one again.

    Args:
        nodes: The nodes in the session.
    """

    def __init__(self, nodes: ZooKeeperNodes) -> None:
        self._nodes = nodes
        self._changed = asyncio.Event()
        self._are_names_stale = True
        self._stale: set[str] = set()
        self._counts: dict[str, int] = {}
        # A session takes the same callback object once.
        self._callbacks: dict[str, partial[None]] = {}

    async def read(self) -> dict[str, int]:
        """Return the partition count of each topic, and watch what was read."""
        self._changed.clear()
        if self._are_names_stale:
            self._are_names_stale = False
            names = set(await self._nodes.topic_names(self._on_names_changed))
            for topic in self._callbacks.keys() - names:
                self._forget(topic)
            self._stale |= names - self._counts.keys()
        for topic in sorted(self._stale):
            self._stale.discard(topic)
            callback = self._callbacks.setdefault(topic, partial(self._on_topic_changed, topic))
            count = await self._nodes.partition_count(topic, callback)
            if count:
                self._counts[topic] = count
            else:  # It may be deleted, and then nothing watches it: it is read with the next names.
                self._counts.pop(topic, None)
        return dict(self._counts)

    def _forget(self, topic: str) -> None:
        del self._callbacks[topic]
        self._counts.pop(topic, None)
        self._stale.discard(topic)
        self._nodes.forget_topic(topic)

    async def wait_changed(self) -> None:
        """Return when a watch has fired since the last `read` began."""
        await self._changed.wait()

    def _on_names_changed(self) -> None:
        self._are_names_stale = True
        self._changed.set()

    def _on_topic_changed(self, topic: str) -> None:
        self._stale.add(topic)
        self._changed.set()
