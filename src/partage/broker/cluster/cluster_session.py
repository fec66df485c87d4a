"""The session with ZooKeeper, as the membership of a broker uses it.

`partage.broker.cluster.kazoo_session` implements it with kazoo. A simulation implements it without
a server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from partage.broker.cluster.state_address import StateAddress
from partage.model.settings import BrokerSettings
from partage.store.zookeeper import Session


class ZooKeeperUnreachableError(OSError):
    """Raised if no server of the ensemble answers."""


class ZooKeeperTlsError(Exception):
    """Raised if the settings ``zookeeper.ssl.*`` are invalid; the message names the setting."""


class ClusterSession(Session, Protocol):
    """One session with the state of a cluster.

    Attributes:
        on_suspended: called on the loop when the connection is lost.
        on_connected: called on the loop when it is connected again in the same session.
        on_ended: called on the loop when the session has ended.
        started_ms: the time before the session started, by `Clock.boot_ms`.
    """

    on_suspended: Callable[[], None]
    on_connected: Callable[[], None]
    on_ended: Callable[[], None]
    started_ms: int

    async def end(self) -> None:
        """Close the session. Its ephemeral nodes are removed at once if a server is reachable."""


#: Begins a session; raises `ZooKeeperUnreachableError` or `ZooKeeperTlsError`.
BeginSession = Callable[[StateAddress, BrokerSettings], Awaitable[ClusterSession]]
