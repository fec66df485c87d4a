"""Requests of commands that Partage's client sends, not librdkafka."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from partage.client.cluster import Cluster
from partage.client.errors import (
    ClientError,
    ConnectError,
    ConnectionLostError,
    RequestTimeoutError,
)
from partage.console.common.client_options import client_options
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError, usage_error
from partage.model.addresses import Address
from partage.model.groups import Node

T = TypeVar("T")

_ADVICE: Final = "try again"


def broker_nodes(cluster: ClusterClient) -> dict[Address, Node]:
    """Return all brokers by their addresses."""
    brokers = cluster.metadata().brokers.values()
    return {
        Address(str(each.host), int(each.port)): Node(each.id, str(each.host), int(each.port))
        for each in brokers
    }


async def brokers_by_address(client: Cluster) -> dict[Address, Node]:
    """Return the brokers that the cluster lists now, in one attempt.

    Raises:
        ClientError: No broker responds.
    """
    addresses = await client.broker_addresses()
    return {
        address: Node(broker_id, address.host, address.port)
        for broker_id, address in addresses.items()
    }


def broker_addresses(cluster: ClusterClient) -> list[Address]:
    """Return the addresses of all brokers."""
    return list(broker_nodes(cluster))


def request_error(
    error: ClientError, nodes: Mapping[Address, Node], advice: str = _ADVICE
) -> CommandError:
    """Return the error of a command; it names a broker that did not respond, and the advice."""
    if not isinstance(error, ConnectError | ConnectionLostError | RequestTimeoutError):
        return CommandError(str(error))
    node = nodes.get(error.address)
    if node is None:
        return CommandError(str(error))
    reason = error.reason if isinstance(error, ConnectError) else str(error)
    return CommandError(
        f"no response from broker {node.id} at {error.address} ({reason}); start it, or {advice}"
    )


def run_client(
    cluster: ClusterClient, attempt: Callable[[Cluster], Awaitable[T]], advice: str = _ADVICE
) -> T:
    """Return the result of requests, repeated while their errors can be retried.

    Retries end after ``cluster.retry_timeout_ms``.

    Args:
        cluster: Cluster to ask.
        attempt: Sends the requests once.
        advice: Part of the error for a broker that does not respond.

    Raises:
        CommandError: The last error, or the client cannot use the security properties.
    """
    options = client_options(cluster.properties, cluster.timeout_ms, cluster.retry_timeout_ms)
    if options is None:
        raise usage_error(
            "this command needs Partage's client, which cannot use these security properties; use "
            "PEM files for certificates and keys, and sasl.username and sasl.password for logins"
        )
    nodes = broker_nodes(cluster)

    async def run() -> T:
        async with Cluster(list(nodes), options) as client:
            return await client.with_retries(lambda: attempt(client))

    try:
        return asyncio.run(run())
    except ClientError as error:
        raise request_error(error, nodes, advice) from error


def prepare_next_poll(cluster: ClusterClient) -> None:
    """Renew the librdkafka client where that is necessary, before a command repeats its requests.

    After a failure, only a new client reports the cause again. Where only librdkafka can connect,
    it keeps asking a coordinator that has moved; a new client looks it up again.
    """
    is_alone = client_options(cluster.properties, cluster.timeout_ms) is None
    if is_alone or cluster.recent_errors:
        cluster.reset_connections()
