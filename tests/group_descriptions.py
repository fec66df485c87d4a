"""State of groups from outside, through Partage's client.

librdkafka aborts the process if a connection to a coordinator breaks at the wrong moment of such a
request (librdkafka issue 4605), so tests with outages must not use it for them.
"""

from __future__ import annotations

import asyncio

from partage.client.addresses import parse_bootstrap_servers
from partage.client.cluster import Cluster
from partage.client.group.committed_offsets import committed_offsets
from partage.client.options import ClientOptions, RetryPolicy
from partage.console.common.cluster_client import ClusterClient
from partage.console.groups.coordinated_groups import fetch_groups
from partage.model.groups import GroupDescription
from partage.model.topic_partition import TopicPartition

_TIMEOUT_MS = 30_000


def describe_group(bootstrap: str, group: str) -> GroupDescription:
    """Return an existing group, without offsets, from a client that knew no broker before."""
    cluster = ClusterClient(bootstrap, {}, _TIMEOUT_MS, verbose=False)
    return fetch_groups(cluster, [group])[group].description


def owned_partitions(bootstrap: str, group: str) -> dict[str, list[int]]:
    """Return the sorted partition numbers of each member, by member id."""
    return {
        member.member_id: sorted(number for each in member.partitions for number in each.partitions)
        for member in describe_group(bootstrap, group).members
    }


def fetch_committed(bootstrap: str, group: str) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group."""

    async def fetch() -> dict[TopicPartition, int]:
        options = ClientOptions(retries=RetryPolicy(timeout_ms=_TIMEOUT_MS))
        async with Cluster(parse_bootstrap_servers(bootstrap), options) as client:
            offsets = (await committed_offsets(client, [group]))[group]
        return {TopicPartition(*partition): each.offset for partition, each in offsets.items()}

    return asyncio.run(fetch())
