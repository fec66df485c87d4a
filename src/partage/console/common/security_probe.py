"""Reasons for which a broker refuses connections, from Partage's client.

librdkafka often reports only that a connection was closed: for a client without TLS at a port with
TLS, for instance.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Final

from partage.client.cluster import Cluster
from partage.client.errors import ClientError
from partage.client.options import ClientOptions
from partage.client.security.errors import SecurityError
from partage.console.common.client_options import client_options, property_name

_OPTION: Final = re.compile(r"\b(?:security|sasl|ssl)_[a-z_]+\b")


def security_error(properties: Mapping[str, str], timeout_ms: int) -> str | None:
    """Return the reason for which a broker refuses connections, or None if it is not known.

    Args:
        properties: librdkafka properties from the user, including ``bootstrap.servers``.
        timeout_ms: Timeout for each address.
    """
    options = client_options(properties, timeout_ms)
    if options is None:
        return None
    error = asyncio.run(_connect(properties["bootstrap.servers"], options))
    if error is None:
        return None
    text = error.replace("ssl_check_hostname=False", "ssl.endpoint.identification.algorithm=none")
    return _OPTION.sub(lambda found: property_name(found[0]), text)


async def _connect(servers: str, options: ClientOptions) -> str | None:
    """Send a request to the first broker that answers. Return its refusal, or None."""
    try:
        async with Cluster(servers, options) as client:
            # A broker that requires SASL closes the connection at the first request.
            await client.with_retries(client.broker_addresses)
    except SecurityError as error:
        return str(error)
    except (ClientError, ValueError):
        return None
    return None
