"""What groups have committed."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import ClusterMetadata

from partage.client import cluster as client
from partage.client.addresses import Address
from partage.client.errors import BadResponse, ClientError
from partage.client.group.offsets import OffsetAndMetadata, Offsets
from partage.client.group.reading import committed_offsets as read
from partage.client.options import ClientOptions
from partage.console.common.client_options import client_options
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError
from partage.console.common.offsets import Place

CommittedOffsets: TypeAlias = dict[Place, OffsetAndMetadata]


def committed_offsets(
    cluster: ClusterClient, names: list[str], metadata: ClusterMetadata | None = None
) -> dict[str, CommittedOffsets]:
    """What these groups have committed, by group; nothing for a group that there is not.

    Asked for by Partage's own client, a request for many groups: librdkafka 2.16 asks for one at a
    time, reads metadata past its end, and ends the process when a broker answers that it no longer
    coordinates a group. It is asked where only it gets in, or can read what a broker sends.

    Raises:
        Failure: a coordinator does not answer, or refuses.
    """
    if not names:
        return {}
    options = client_options(cluster.properties, cluster.timeout_ms)
    if options is None:
        return _by_librdkafka(cluster, names)
    metadata = metadata or cluster.metadata()
    brokers = [Address(str(each.host), int(each.port)) for each in metadata.brokers.values()]
    try:
        found = asyncio.run(_asked(brokers, options, names))
    except BadResponse:
        return _by_librdkafka(cluster, names)
    except ClientError as error:
        raise CommandError(str(error)) from error
    return {
        name: {(place.topic, place.partition): each for place, each in offsets.items()}
        for name, offsets in found.items()
    }


async def _asked(
    brokers: list[Address], options: ClientOptions, names: list[str]
) -> dict[str, Offsets]:
    async with client.Cluster(brokers, options) as cluster:
        return await read(cluster, names)


def _by_librdkafka(cluster: ClusterClient, names: list[str]) -> dict[str, CommittedOffsets]:
    """All groups at once, each by a request of its own."""
    asked = {
        name: cluster.admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name)], request_timeout=cluster.timeout_s
        )[name]
        for name in names
    }
    return {
        name: {
            (each.topic, each.partition): OffsetAndMetadata(
                each.offset,
                _metadata(each),
                -1 if each.leader_epoch is None else each.leader_epoch,
            )
            for each in cluster.result(answer).topic_partitions or []
            if each.offset >= 0
        }
        for name, answer in asked.items()
    }


def _metadata(commit: TopicPartition) -> str:
    """What somebody wrote beside an offset; nothing where librdkafka finds no text."""
    try:
        return commit.metadata or ""
    except UnicodeDecodeError:
        return ""
