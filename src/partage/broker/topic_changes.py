"""Who changes topics: this broker for itself, or a cluster for all of its brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from partage.broker.hosted import Hosted, HostedTopic
from partage.log.outcomes import Refusal

#: Has the groups forget what they committed of topics, and waits until no crash can undo that.
Forget = Callable[[frozenset[str]], Awaitable[None]]
Edit = Callable[[dict[str, str]], Refusal | None]


class TopicChanges(Protocol):
    """What can be done to topics; `Hosted` says what there is, and what could be."""

    async def create(
        self, name: str, partition_count: int, configs: Mapping[str, str], brokers: Sequence[int]
    ) -> HostedTopic | Refusal:
        """Create a topic, its partitions on ``brokers``; anywhere if there are none given."""

    async def create_missing(self, name: str) -> HostedTopic | Refusal:
        """Create a topic that a client spoke of."""

    async def delete(self, name: str) -> HostedTopic | Refusal:
        """Delete a topic; no group has offsets of it when this returns, whoever crashes."""

    async def add_partitions(
        self, name: str, partition_count: int, brokers: Sequence[int]
    ) -> HostedTopic | Refusal:
        """Let a topic have so many partitions in all, the new ones on ``brokers``."""

    async def alter_configs(self, name: str, edit: Edit, *, validate_only: bool) -> Refusal | None:
        """Change a topic's own configs."""


class LocalChanges:
    """The changes of a broker that is alone: there is only one place for a partition."""

    def __init__(self, hosted: Hosted, forget: Forget) -> None:
        self._hosted = hosted
        self._forget = forget

    async def create(
        self, name: str, partition_count: int, configs: Mapping[str, str], brokers: Sequence[int]
    ) -> HostedTopic | Refusal:
        """Create a topic."""
        return await self._hosted.create(name, partition_count, configs)

    async def create_missing(self, name: str) -> HostedTopic | Refusal:
        """Create a topic that a client spoke of."""
        return await self._hosted.create_missing(name)

    async def delete(self, name: str) -> HostedTopic | Refusal:
        """Delete a topic, and have the groups forget it before anybody can make it anew."""
        deleted = await self._hosted.delete(name)
        if not isinstance(deleted, Refusal):
            await self._forget(frozenset({name}))
        return deleted

    async def add_partitions(
        self, name: str, partition_count: int, brokers: Sequence[int]
    ) -> HostedTopic | Refusal:
        """Let a topic have so many partitions in all."""
        return await self._hosted.add_partitions(name, partition_count)

    async def alter_configs(self, name: str, edit: Edit, *, validate_only: bool) -> Refusal | None:
        """Change a topic's own configs."""
        return await self._hosted.alter_configs(name, edit, validate_only=validate_only)
