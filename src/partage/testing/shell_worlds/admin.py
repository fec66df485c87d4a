"""An administrator of a world: it changes topics, and removes members of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from partage.client.connection import Connection
from partage.client.errors import ClientError
from partage.client.options import ClientOptions
from partage.model.addresses import Address
from partage.model.errors import ErrorCode
from partage.testing.world.world import PartageWorld
from partage.wire.apis.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from partage.wire.apis.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from partage.wire.apis.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from partage.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupMember, LeaveGroupRequest

_PORT: Final = 9092
_RETRY_S: Final = 0.2
_ATTEMPTS_MAX: Final = 300
_TIMEOUT_MS: Final = 2_000


class WorldAdmin:
    """An administrator without a process; its requests are repeated until they succeed.

    Args:
        world: The world.
    """

    def __init__(self, world: PartageWorld) -> None:
        self._world = world

    async def create_partitions(self, topic: str, count: int) -> None:
        """Add partitions to a topic until it has ``count``."""
        added = CreatePartitionsTopic(name=topic, count=count)
        request = CreatePartitionsRequest(topics=[added], timeout_ms=_TIMEOUT_MS)

        async def create(connection: Connection) -> bool:
            (result,) = (await connection.send(CREATE_PARTITIONS, request)).results
            # if the response was lost, the partitions exist
            return result.error_code in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS)

        await self._repeat(create)

    async def create_topic(self, name: str) -> None:
        """Create a topic with one partition."""
        created = CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        request = CreateTopicsRequest(topics=[created], timeout_ms=_TIMEOUT_MS)

        async def create(connection: Connection) -> bool:
            (result,) = (await connection.send(CREATE_TOPICS, request)).topics
            # if the response was lost, the topic exists
            return result.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

        await self._repeat(create)

    async def remove_member(
        self, group: str, rng: Random, on_removed: Callable[[str], None]
    ) -> None:
        """Remove a member of a classic group, if it has any; without a coordinator, do nothing.

        Args:
            group: The group.
            rng: Draws the member.
            on_removed: Called with its process before.
        """
        coordinator = self._world.coordinator(group)
        if coordinator is None or not self._world.is_running(coordinator):
            return
        try:
            async with asyncio.timeout(_TIMEOUT_MS / 1000):
                await self._remove(Address(coordinator, _PORT), group, rng, on_removed)
        except (ClientError, TimeoutError):
            return

    async def _remove(
        self,
        coordinator: Address,
        group: str,
        rng: Random,
        on_removed: Callable[[str], None],
    ) -> None:
        connection = await Connection.open(coordinator, ClientOptions())
        try:
            (described,) = (
                await connection.send(DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[group]))
            ).groups
            if not described.members:
                return
            member = rng.choice(described.members)
            removed = LeaveGroupMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id
            )
            request = LeaveGroupRequest(group_id=group, members=[removed])
            on_removed(member.client_host.removeprefix("/"))
            await connection.send(LEAVE_GROUP, request)
            self._world.note(f"removed a member of {group} at {member.client_host}")
        finally:
            connection.close()

    async def _repeat(self, request: Callable[[Connection], Awaitable[bool]]) -> None:
        options = ClientOptions(request_timeout_ms=_TIMEOUT_MS, connect_timeout_ms=_TIMEOUT_MS)
        for _ in range(_ATTEMPTS_MAX):
            try:
                connection = await Connection.open(Address(self._world.broker, _PORT), options)
            except ClientError:
                await asyncio.sleep(_RETRY_S)
                continue
            try:
                if await request(connection):
                    return
            except ClientError:
                pass
            finally:
                connection.close()
            await asyncio.sleep(_RETRY_S)
        self._world.break_rule("failure", "an administrator's request did not succeed")
