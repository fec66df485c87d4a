"""A client for one group in a simulated world that looks up the coordinator and retries."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Self

from broker.group_requests import commit_request, heartbeat_request, join_request, sync_request
from partage.client.connection import Connection
from partage.client.errors import ClientError
from partage.model.errors import ErrorCode
from partage.testing import PartageWorld
from partage.wire.api import Api, Req
from partage.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from partage.wire.apis.heartbeat import HEARTBEAT
from partage.wire.apis.join_group import JOIN_GROUP, JoinGroupResponse
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from partage.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from partage.wire.apis.sync_group import SYNC_GROUP, SyncGroupResponse
from world_connections import REQUEST_TIMEOUT_MS, connect

from .group_client import RETRIABLE, error_of

#: Limit of all retries of a request in virtual time.
_PATIENCE_S: Final = 120.0
_RETRY_S: Final = 0.02
#: The coordinator delays its response to a join until all members have joined.
_JOIN_TIMEOUT_MS: Final = 60_000


class WorldGroupClient:
    """Sends requests for one group, as `cluster.group_client.GroupClient` does on real sockets."""

    def __init__(self, world: PartageWorld, group: str) -> None:
        self.group = group
        self._world = world
        self._connection: Connection | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection to the coordinator."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def find(self) -> str:
        """Return the coordinator's host, from any broker that knows it."""
        request = FindCoordinatorRequest(coordinator_keys=[self.group])
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                for broker in self._world.brokers:
                    try:
                        connection = await connect(broker)
                    except ClientError:
                        continue
                    try:
                        (found,) = (await connection.send(FIND_COORDINATOR, request)).coordinators
                    except ClientError:
                        continue
                    finally:
                        connection.close()
                    if not found.error_code:
                        assert isinstance(found.host, str)
                        return found.host
                await asyncio.sleep(_RETRY_S)

    async def request(
        self, api: Api[Req, Any], message: Req, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> Any:
        """Return the first response without a retriable error."""
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                try:
                    if self._connection is None:
                        self._connection = await connect(await self.find())
                    response = await self._connection.send(api, message, timeout_ms=timeout_ms)
                except ClientError:
                    self.close()
                else:
                    error = error_of(response)
                    if error not in RETRIABLE:
                        return response
                    if error != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                        self.close()
                await asyncio.sleep(_RETRY_S)

    async def join(self, member_id: str = "", **options: Any) -> JoinGroupResponse:
        """Join as clients do: with the generated id, or as a new member if the id is unknown."""
        while True:
            request = join_request(self.group, member_id, **options)
            answer: JoinGroupResponse = await self.request(JOIN_GROUP, request, _JOIN_TIMEOUT_MS)
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                member_id = answer.member_id
            elif answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                member_id = ""
            else:
                return answer

    async def sync(
        self, joined: JoinGroupResponse, assigned: bytes | None = b"all"
    ) -> SyncGroupResponse:
        """Return the response to the sync of a member, which assigns something if it leads."""
        assignments = {} if assigned is None else {joined.member_id: assigned}
        request = sync_request(self.group, joined, assignments)
        response: SyncGroupResponse = await self.request(SYNC_GROUP, request)
        return response

    async def join_and_sync(self, **options: Any) -> JoinGroupResponse:
        """Form a group of one member with an assignment."""
        joined = await self.join(**options)
        assert joined.error_code == 0
        assert (await self.sync(joined)).error_code == 0
        return joined

    async def heartbeat(self, joined: JoinGroupResponse) -> int:
        """Send a heartbeat; return its error code."""
        return error_of(await self.request(HEARTBEAT, heartbeat_request(self.group, joined)))

    async def commit(self, topic: str, offset: int, joined: JoinGroupResponse | None = None) -> int:
        """Commit an offset of partition 0, as a member if one is given; return the error code."""
        request = commit_request(self.group, topic, {0: offset}, joined)
        return error_of(await self.request(OFFSET_COMMIT, request))

    async def committed(self, topic: str) -> int:
        """Return the committed offset of partition 0."""
        asked = OffsetFetchTopic(name=topic, partition_indexes=[0])
        request = OffsetFetchRequest(groups=[OffsetFetchGroup(group_id=self.group, topics=[asked])])
        answer = await self.request(OFFSET_FETCH, request)
        return int(answer.groups[0].topics[0].partitions[0].committed_offset)


def group_coordinated_by(world: PartageWorld, broker: str) -> str:
    """Return the name of a group that this broker coordinates."""
    return next(name for n in range(200) if world.coordinator(name := f"g{n}") == broker)
