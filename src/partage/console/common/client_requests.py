"""Requests that librdkafka's Python client does not offer, sent by Partage's client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from partage.client.addresses import Address
from partage.client.cluster import Cluster
from partage.client.errors import ClientError
from partage.console.common.client_options import client_options
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError, usage_error

T = TypeVar("T")


def broker_addresses(cluster: ClusterClient) -> list[Address]:
    """Return the addresses of all brokers."""
    return [Address(str(each.host), int(each.port)) for each in cluster.metadata().brokers.values()]


def run_client(cluster: ClusterClient, attempt: Callable[[Cluster], Awaitable[T]]) -> T:
    """Return the result of requests, repeated while their errors can be retried.

    Raises:
        CommandError: The last error, or the client cannot use the security properties.
    """
    options = client_options(cluster.properties, cluster.timeout_ms)
    if options is None:
        raise usage_error(
            "this command needs Partage's client, which cannot use these security properties; use "
            "PEM files for certificates and keys, and sasl.username and sasl.password for logins"
        )
    brokers = broker_addresses(cluster)

    async def run() -> T:
        async with Cluster(brokers, options) as client:
            return await client.with_retries(lambda: attempt(client))

    try:
        return asyncio.run(run())
    except ClientError as error:
        raise CommandError(str(error)) from error
