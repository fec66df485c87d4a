"""A probe of a port that closed a connection, to report the cause."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from partage.client.security.tls import is_from_tls_peer
from partage.model.addresses import Address

#: The timeout of a probe; a TLS port answers at once.
PROBE_TIMEOUT_MS: Final = 2_000


async def speaks_tls(address: Address) -> bool:
    """True if a port answers a TLS handshake; no data is sent over the connection."""
    anybody = ssl.create_default_context()
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_MS / 1000):
            transport, _ = await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, *address, ssl=anybody
            )
    except (OSError, TimeoutError) as error:
        return is_from_tls_peer(error)
    transport.abort()
    return True
