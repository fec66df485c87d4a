"""Requests of one broker to another over the simulated network.

They correspond to `partage.broker.transactions.peer_queue`. Each request has a separate connection,
so requests to one broker may overtake each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from partage.lab.brokers.shell import BrokerShell
from partage.lab.clients.client_connection import ClientConnection
from partage.wire.api import AnyApi
from partage.wire.types import Message

_TIMEOUT_MS: Final = 3_000

#: Called with the response, or with None if it was lost or did not arrive in time.
PeerResponse = Callable[[Any], None]


def peer_name(broker_id: int) -> str:
    """Return the name of a broker as the client of other brokers."""
    return f"broker {broker_id}"


class PeerRequests:
    """The requests of one broker process."""

    def __init__(self, broker: BrokerShell) -> None:
        self._broker = broker
        self._connections: set[ClientConnection] = set()

    def send(
        self, broker_id: int, api: AnyApi, version: int, message: Message, done: PeerResponse
    ) -> None:
        """Send a request to a broker; ``done`` is called once, unless this process dies."""
        bind = self._broker.process_binder()
        is_done = False

        def finish(response: Any) -> None:
            nonlocal is_done
            if not is_done:
                is_done = True
                self._connections.discard(connection)
                if response is None:
                    connection.abort()
                else:
                    connection.close()
                done(response)

        def opened(is_open: bool) -> None:
            if not is_open or not connection.send(api, message, finish, _TIMEOUT_MS):
                finish(None)

        connection = ClientConnection(
            self._broker.world.network,
            peer_name(self._broker.broker_id),
            broker_id,
            0,
            lambda: finish(None),
            lambda call: bind(lambda: self._broker.when_awake(bind(call)))(),
            {api.key: version},
        )
        self._connections.add(connection)
        connection.open(opened)

    def close(self) -> None:
        """Close all connections, as the operating system does after the process died."""
        connections, self._connections = self._connections, set()
        for connection in connections:
            connection.close()
