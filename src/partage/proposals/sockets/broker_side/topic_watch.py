"""The coordinator's watches on topics and their partitions (section 5, steps 2 and 3)."""

from __future__ import annotations

import asyncio
from functools import partial

from partage.proposals.sockets.broker_side.zookeeper_nodes import ZooKeeperNodes


class TopicWatch:
    """Watches ``/brokers/topics`` and each topic below it, in one session.

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
            names = await self._nodes.topic_names(self._on_names_changed)
            self._stale.update(name for name in names if name not in self._counts)
        for topic in sorted(self._stale):
            self._stale.discard(topic)
            callback = self._callbacks.setdefault(topic, partial(self._on_topic_changed, topic))
            self._counts[topic] = await self._nodes.partition_count(topic, callback)
        return dict(self._counts)

    async def wait_changed(self) -> None:
        """Return when a watch has fired since the last `read` began."""
        await self._changed.wait()

    def _on_names_changed(self) -> None:
        self._are_names_stale = True
        self._changed.set()

    def _on_topic_changed(self, topic: str) -> None:
        self._stale.add(topic)
        self._changed.set()
