"""Who changes topics: this broker for itself, or a cluster for all of its brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from partage.broker.topics.log_manager import LocalTopic, LogManager
from partage.log.results import Refusal

ConfigEdit = Callable[[dict[str, str]], Refusal | None]

_REQUEST_TIMEOUT_MAX_S: Final = 15.0  # a session may have to run out first, and a take-over


def request_deadline_s(timeout_ms: int | None = None) -> float:
    """When a request is answered at the latest whose client waits so long, by the loop's clock."""
    waited_s = (
        _REQUEST_TIMEOUT_MAX_S
        if timeout_ms is None
        else min(timeout_ms / 1000, _REQUEST_TIMEOUT_MAX_S)
    )
    return asyncio.get_running_loop().time() + waited_s


class CommittedOffsetsCleaner(Protocol):
    """What changes of topics need of the groups."""

    def delete_topic_offsets(self, names: frozenset[str]) -> None:
        """Forget what was committed of topics that are gone, before anything else is done."""

    async def wait_durable(self) -> None:
        """Return once no crash can bring back what is forgotten, or after a while."""


class TopicAdmin(Protocol):
    """What can be done to topics; `Hosted` says what there is, and what could be."""

    async def create(
        self,
        name: str,
        partition_count: int,
        configs: Mapping[str, str],
        brokers: Sequence[int],
        until_s: float | None = None,
    ) -> LocalTopic | Refusal:
        """Create a topic, its partitions on ``brokers``; anywhere if there are none given. What
        stands in its way for a while is waited for; see `waited_until_s`.
        """

    async def auto_create(self, name: str) -> LocalTopic | Refusal:
        """Create a topic that a client spoke of, if that can be done at once."""

    async def delete(self, name: str) -> LocalTopic | Refusal:
        """Delete a topic, and have the groups forget it before anybody can make it anew."""

    async def wait_offsets_deleted(self) -> None:
        """Return once no crash can bring back what groups had committed of deleted topics."""

    async def add_partitions(
        self, name: str, partition_count: int, brokers: Sequence[int]
    ) -> LocalTopic | Refusal:
        """Let a topic have so many partitions in all, the new ones on ``brokers``."""

    async def alter_configs(
        self, name: str, edit: ConfigEdit, *, validate_only: bool
    ) -> Refusal | None:
        """Change a topic's own configs."""


class LocalTopicAdmin:
    """The changes of a broker that is alone: there is only one place for a partition."""

    def __init__(self, hosted: LogManager, groups: CommittedOffsetsCleaner) -> None:
        self._log_manager = hosted
        self._groups = groups

    async def create(
        self,
        name: str,
        partition_count: int,
        configs: Mapping[str, str],
        brokers: Sequence[int],
        until_s: float | None = None,
    ) -> LocalTopic | Refusal:
        """Create a topic; nothing stands in its way."""
        return await self._log_manager.create(name, partition_count, configs)

    async def auto_create(self, name: str) -> LocalTopic | Refusal:
        """Create a topic that a client spoke of."""
        return await self._log_manager.auto_create(name)

    async def delete(self, name: str) -> LocalTopic | Refusal:
        """Delete a topic."""
        deleted = await self._log_manager.delete(name)
        if not isinstance(deleted, Refusal):
            self._groups.delete_topic_offsets(frozenset({name}))
        return deleted

    async def wait_offsets_deleted(self) -> None:
        """Return once the groups have stored it."""
        await self._groups.wait_durable()

    async def add_partitions(
        self, name: str, partition_count: int, brokers: Sequence[int]
    ) -> LocalTopic | Refusal:
        """Let a topic have so many partitions in all."""
        return await self._log_manager.add_partitions(name, partition_count)

    async def alter_configs(
        self, name: str, edit: ConfigEdit, *, validate_only: bool
    ) -> Refusal | None:
        """Change a topic's own configs."""
        return await self._log_manager.alter_configs(name, edit, validate_only=validate_only)
