"""Retries of a topic creation whose name is still reserved, as events."""

from __future__ import annotations

import asyncio

import pytest

from partage.broker.cluster import cluster_topic_admin
from partage.store.shared_topics import SharedTopics


class NameRetries:
    """Shortens the time between retries, and lets a test wait for a number of them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._tries = asyncio.Semaphore(0)
        release_names = SharedTopics.release_names

        async def count_and_release(topics: SharedTopics) -> set[str]:
            reserved = await release_names(topics)
            self._tries.release()
            return reserved

        patch.setattr(SharedTopics, "release_names", count_and_release)
        patch.setattr(cluster_topic_admin, "_NAME_RETRY_S", 0.001)

    async def wait(self, count: int) -> None:
        """Wait until the brokers have tried ``count`` times to free names."""
        for _ in range(count):
            await self._tries.acquire()
