"""Committed offsets of groups."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as RdTopicPartition
from confluent_kafka.admin import ClusterMetadata

from partage.client import cluster as client
from partage.client.errors import ClientError, InvalidResponseError
from partage.client.group.committed_offsets import committed_offsets as read
from partage.client.group.offsets import OffsetAndMetadata, Offsets
from partage.client.options import ClientOptions
from partage.console.common.client_options import client_options
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError
from partage.model.addresses import Address
from partage.model.topic_partition import TopicPartition

CommittedOffsets: TypeAlias = dict[TopicPartition, OffsetAndMetadata]


def committed_offsets(
    cluster: ClusterClient, names: list[str], metadata: ClusterMetadata | None = None
) -> dict[str, CommittedOffsets]:
    """Return the committed offsets by group; an unknown group has none.

    Partage's own client sends one request for many groups. librdkafka 2.16 sends one request per
    group, reads metadata beyond its end, and aborts the process if a broker answers that it no
    longer coordinates a group. It is used only if Partage's client cannot connect with these
    properties, or cannot decode a response.

    Args:
        cluster: Cluster to ask.
        names: Groups.
        metadata: Metadata of the cluster, if the caller has it.

    Raises:
        CommandError: A coordinator does not respond, or refuses the request.
    """
    if not names:
        return {}
    options = client_options(cluster.properties, cluster.timeout_ms, cluster.retry_timeout_ms)
    if options is None:
        return _by_librdkafka(cluster, names)
    metadata = metadata or cluster.metadata()
    brokers = [Address(str(each.host), int(each.port)) for each in metadata.brokers.values()]
    try:
        found = asyncio.run(_fetch(brokers, options, names))
    except InvalidResponseError:
        return _by_librdkafka(cluster, names)
    except ClientError as error:
        raise CommandError(str(error)) from error
    return {
        name: {
            TopicPartition(partition.topic, partition.partition): each
            for partition, each in offsets.items()
        }
        for name, offsets in found.items()
    }


async def _fetch(
    brokers: list[Address], options: ClientOptions, names: list[str]
) -> dict[str, Offsets]:
    async with client.Cluster(brokers, options) as cluster:
        return await read(cluster, names)


def _by_librdkafka(cluster: ClusterClient, names: list[str]) -> dict[str, CommittedOffsets]:
    """Return the committed offsets through librdkafka, with concurrent requests per group."""
    results = {
        name: cluster.admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name)], request_timeout=cluster.timeout_s
        )[name]
        for name in names
    }
    return {
        name: {
            TopicPartition(each.topic, each.partition): OffsetAndMetadata(
                each.offset,
                _metadata(each),
                -1 if each.leader_epoch is None else each.leader_epoch,
            )
            for each in cluster.result(answer).topic_partitions or []
            if each.offset >= 0
        }
        for name, answer in results.items()
    }


def _metadata(commit: RdTopicPartition) -> str:
    """Return the metadata of a commit; empty if librdkafka cannot decode it."""
    try:
        return commit.metadata or ""
    except UnicodeDecodeError:
        return ""
