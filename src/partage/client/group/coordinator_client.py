"""A group's coordinator: finding it, and a connection to it for this member alone.

The connection is the member's own because a JoinGroup parks: whatever is sent after it over the
same connection, by anybody, is served once it is answered.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from partage.client.addresses import Address
from partage.client.cluster import Cluster
from partage.client.connection import Connection
from partage.client.errors import BrokerResponseError
from partage.client.group.coordinator_lookup import find_coordinators
from partage.client.group.errors import CoordinatorNotConnectedError
from partage.wire.api import Api
from partage.wire.types import Message

Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)


class CoordinatorClient:
    """The coordinator of one group, as far as it is known."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._connection: Connection | None = None
        self._connect_lock = asyncio.Lock()

    async def connect(self) -> Connection:
        """The connection, made if there is none; one attempt.

        Raises:
            BrokerResponseError: nobody coordinates the group for now, or we may not know who.
            ConnectError: the coordinator is not where it is said to be.
            ClientError: as `Cluster.any_broker`.
        """
        async with self._connect_lock:
            if self._connection is None or not self._connection.is_open:
                address = await self._find()
                self._connection = await Connection.open(address, self._cluster.options)
            return self._connection

    async def send(self, api: Api[Req, Res], message: Req, *, timeout_ms: int | None = None) -> Res:
        """Send a request over the connection there is.

        Raises:
            CoordinatorNotConnectedError: there is none; `connected` makes one.
            ClientError: as `Connection.send`.
        """
        connection = self._connection
        if connection is None:
            raise CoordinatorNotConnectedError(self._group_id)
        return await connection.send(api, message, timeout_ms=timeout_ms)

    def disconnect(self) -> None:
        """Drop the connection; what waits on it is told so."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _find(self) -> Address:
        broker = await self._cluster.any_broker()
        place = (await find_coordinators(broker, [self._group_id]))[self._group_id]
        if isinstance(place, BrokerResponseError):
            raise place
        return place
