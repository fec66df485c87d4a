"""Topic administration: the interface, and the implementation for a single broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from partage.broker.topics.log_manager import LocalTopic, LogManager
from partage.log.results import Refusal
from partage.model.errors import ErrorCode

ConfigEdit = Callable[[dict[str, str]], Refusal | None]

_REQUEST_TIMEOUT_MAX_S: Final = 15.0  # enough for a session to expire and for a takeover


def request_deadline_s(timeout_ms: int | None = None) -> float:
    """Return the deadline of a request by the loop's clock.

    Args:
        timeout_ms: the client's timeout; at most 15 s are used, which is also the default.
    """
    waited_s = (
        _REQUEST_TIMEOUT_MAX_S
        if timeout_ms is None
        else min(timeout_ms / 1000, _REQUEST_TIMEOUT_MAX_S)
    )
    return asyncio.get_running_loop().time() + waited_s


class CommittedOffsetsCleaner(Protocol):
    """The group offsets, as topic administration uses them."""

    def delete_topic_offsets(self, names: frozenset[str]) -> None:
        """Delete the groups' offsets of deleted topics, before any later event is handled."""

    async def wait_durable(self) -> None:
        """Return once the deletions are durable, or after a timeout."""


#: Refusals that depend on the topics that exist.
_ABOUT_EXISTING: Final = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_PARTITIONS,
    }
)


class TopicAdmin(Protocol):
    """Changes of topics. `LogManager` validates them and has the existing topics."""

    async def create(
        self,
        name: str,
        partition_count: int,
        configs: Mapping[str, str],
        brokers: Sequence[int],
        until_s: float | None = None,
    ) -> LocalTopic | Refusal:
        """Create a topic.

        Args:
            name: the topic.
            partition_count: the number of partitions.
            configs: configs that differ from the defaults.
            brokers: the broker of each partition; empty to let the broker choose.
            until_s: deadline while a temporary obstacle exists, see `request_deadline_s`.
        """

    async def auto_create(self, name: str) -> LocalTopic | Refusal:
        """Create a topic that a client requested metadata for, if possible without waiting."""

    async def delete(self, name: str) -> LocalTopic | Refusal:
        """Delete a topic, and its committed offsets before the name can be used again."""

    async def catch_up(self) -> Refusal | None:
        """Apply the changes of other brokers up to now; return why that is not possible."""

    async def wait_offsets_deleted(self) -> None:
        """Return once the deletion of committed offsets is durable."""

    async def add_partitions(
        self, name: str, partition_count: int, brokers: Sequence[int]
    ) -> LocalTopic | Refusal:
        """Grow a topic to ``partition_count`` partitions, the new ones on ``brokers``."""

    async def alter_configs(
        self, name: str, edit: ConfigEdit, *, validate_only: bool
    ) -> Refusal | None:
        """Change a topic's configs."""


#: Returns why the changes of other brokers cannot be applied; see `TopicAdmin.catch_up`.
CatchUp = Callable[[], Awaitable[Refusal | None]]


def catch_up_once(changes: TopicAdmin) -> CatchUp:
    """Return a function for one request: only its first call reads the changes of other brokers."""
    results: list[Refusal | None] = []

    async def catch_up() -> Refusal | None:
        if not results:
            results.append(await changes.catch_up())
        return results[0]

    return catch_up


async def check_current(check: Callable[[], Refusal | None], catch_up: CatchUp) -> Refusal | None:
    """Return why a request is refused.

    A broker that is cut off may know topics that were deleted, and lack others. So a refusal that
    depends on the topics that exist is checked again, with the changes of the other brokers.
    """
    refusal = check()
    if refusal is None or refusal.code not in _ABOUT_EXISTING:
        return refusal
    return await catch_up() or check()


class LocalTopicAdmin:
    """Topic administration of a single broker."""

    def __init__(self, log_manager: LogManager, groups: CommittedOffsetsCleaner) -> None:
        self._log_manager = log_manager
        self._groups = groups

    async def create(
        self,
        name: str,
        partition_count: int,
        configs: Mapping[str, str],
        brokers: Sequence[int],
        until_s: float | None = None,
    ) -> LocalTopic | Refusal:
        """Create a topic; never waits for an obstacle."""
        return await self._log_manager.create(name, partition_count, configs)

    async def auto_create(self, name: str) -> LocalTopic | Refusal:
        """Create a topic that a client requested metadata for."""
        return await self._log_manager.auto_create(name)

    async def delete(self, name: str) -> LocalTopic | Refusal:
        """Delete a topic, and its committed offsets."""
        deleted = await self._log_manager.delete(name)
        if not isinstance(deleted, Refusal):
            self._groups.delete_topic_offsets(frozenset({name}))
        return deleted

    async def catch_up(self) -> Refusal | None:
        """Return None at once: there are no other brokers."""
        return None

    async def wait_offsets_deleted(self) -> None:
        """Return once the shards have stored the deletion, or after a timeout."""
        await self._groups.wait_durable()

    async def add_partitions(
        self, name: str, partition_count: int, brokers: Sequence[int]
    ) -> LocalTopic | Refusal:
        """Grow a topic to ``partition_count`` partitions."""
        return await self._log_manager.add_partitions(name, partition_count)

    async def alter_configs(
        self, name: str, edit: ConfigEdit, *, validate_only: bool
    ) -> Refusal | None:
        """Change a topic's configs."""
        return await self._log_manager.alter_configs(name, edit, validate_only=validate_only)
