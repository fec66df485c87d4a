"""Connections of tests to brokers in simulated worlds, for single requests."""

from __future__ import annotations

from typing import Final

from partage.client.connection import Connection
from partage.client.options import ClientOptions
from partage.model.addresses import Address

_PORT: Final = 9092
#: Limit of one request in virtual time: a paused broker does not answer.
REQUEST_TIMEOUT_MS: Final = 3_000


async def connect(broker: str) -> Connection:
    """Connect to a broker of the running world."""
    options = ClientOptions(request_timeout_ms=REQUEST_TIMEOUT_MS)
    return await Connection.open(Address(broker, _PORT), options)
