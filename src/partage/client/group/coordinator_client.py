"""A client of a group's coordinator, with a separate connection for each member.

The connection is not shared, because a broker may park JoinGroup: it serves later requests on the
same connection only after the JoinGroup response.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from partage.client.cluster import Cluster
from partage.client.connection import Connection
from partage.client.errors import BrokerResponseError, UnsupportedApiError
from partage.client.group.coordinator_lookup import find_coordinators
from partage.client.group.errors import CoordinatorNotConnectedError
from partage.member.consumer_group.outcome import SendConsumerHeartbeat
from partage.model.addresses import Address
from partage.wire.api import AnyApi, Api
from partage.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from partage.wire.types import Message

Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)


#: The first version of ConsumerGroupHeartbeat with regular expressions.
_WITH_REGEX: Final = 1


class CoordinatorClient:
    """The client of one group's coordinator."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._connection: Connection | None = None
        self._connect_lock = asyncio.Lock()

    async def connect(self) -> Connection:
        """Return the connection; find the coordinator and connect if there is none.

        It makes one attempt.

        Raises:
            BrokerResponseError: The coordinator is unavailable, or the user may not look it up.
            ConnectError: The coordinator is not reachable at its address.
            ClientError: As `Cluster.any_broker`.
        """
        async with self._connect_lock:
            if self._connection is None or not self._connection.is_open:
                address = await self._find()
                self._connection = await Connection.open(address, self._cluster.options)
            return self._connection

    def version_of(self, api: AnyApi, version_max: int) -> int:
        """Return the highest version that both sides support, at most ``version_max``.

        Raises:
            CoordinatorNotConnectedError: There is no connection; call `connect` first.
            UnsupportedApiError: As `Connection.version_of`.
        """
        return self._connected().version_of(api, version_max)

    async def send(
        self,
        api: Api[Req, Res],
        message: Req,
        *,
        version_max: int | None = None,
        timeout_ms: int | None = None,
    ) -> Res:
        """Send a request on the existing connection.

        Raises:
            CoordinatorNotConnectedError: There is no connection; call `connect` first.
            ClientError: As `Connection.send`.
        """
        connection = self._connected()
        return await connection.send(api, message, version_max=version_max, timeout_ms=timeout_ms)

    def _connected(self) -> Connection:
        if self._connection is None:
            raise CoordinatorNotConnectedError(self._group_id)
        return self._connection

    def check_supports(self, heartbeat: SendConsumerHeartbeat) -> None:
        """Check if the coordinator can read a heartbeat.

        Raises:
            CoordinatorNotConnectedError: There is no connection.
            UnsupportedApiError: It does not support the request, or no regular expressions (v1).
        """
        connection = self._connected()
        version = connection.version_of(CONSUMER_GROUP_HEARTBEAT)
        if heartbeat.subscribed_regex and version < _WITH_REGEX:
            ours = f"v{_WITH_REGEX} for a subscription by SubscriptionPattern"
            raise UnsupportedApiError(
                connection.address, CONSUMER_GROUP_HEARTBEAT.name, ours, f"v{version}"
            )

    def disconnect(self) -> None:
        """Close the connection; pending requests fail."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _find(self) -> Address:
        broker = await self._cluster.any_broker()
        place = (await find_coordinators(broker, [self._group_id]))[self._group_id]
        if isinstance(place, BrokerResponseError):
            raise place
        return place
