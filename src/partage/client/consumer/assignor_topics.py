"""The topic metadata that a group leader passes to its assignor."""

from __future__ import annotations

from collections.abc import Mapping

from partage.assignors import Assignor, Topic
from partage.client.cluster import Cluster
from partage.client.group.coordinator_client import CoordinatorClient
from partage.client.group.offsets import fetch_committed
from partage.client.metadata import TopicMetadata as Found
from partage.client.offsets import EARLIEST, LATEST, list_offsets
from partage.model.topic_partition import TopicPartition


async def describe_topics(
    cluster: Cluster,
    coordinator: CoordinatorClient,
    group_id: str,
    assignor: Assignor,
    topics: Mapping[str, Found],
) -> dict[str, Topic]:
    """Return the topics as input of an assignor, with lags if the assignor needs them.

    Raises:
        ClientError: The lags could not be read.
    """
    behind: dict[TopicPartition, int] = {}
    if assignor.needs_lags:
        partitions = [p for topic in topics.values() for p in topic.topic_partitions]
        behind = await group_lags(cluster, coordinator, group_id, partitions)
    return {
        name: Topic(
            name=name,
            partition_count=len(topic.partitions),
            racks=replica_racks(cluster, assignor, topic),
            lags=tuple(behind[p] for p in topic.topic_partitions) if behind else (),
        )
        for name, topic in topics.items()
    }


def replica_racks(cluster: Cluster, assignor: Assignor, topic: Found) -> tuple[frozenset[str], ...]:
    """Return the racks of each partition's replicas (KIP-881); empty if no broker has a rack."""
    of_broker = {
        node_id: rack
        for node_id, broker in cluster.brokers.items()
        if (rack := assignor.rack_of_broker(broker.host, broker.rack)) is not None
    }
    if not of_broker:
        return ()
    return tuple(
        frozenset(of_broker[n] for n in topic.replicas.get(index, ()) if n in of_broker)
        for index in sorted(topic.partitions)
    )


async def group_lags(
    cluster: Cluster,
    coordinator: CoordinatorClient,
    group_id: str,
    partitions: list[TopicPartition],
) -> dict[TopicPartition, int]:
    """Return the group's lags; without a committed offset, the size of the partition."""
    ends = await list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    done = await cluster.with_retries(lambda: fetch_committed(coordinator, group_id, partitions))
    begun = {p: at.offset for p, at in done.items()}
    fresh = [p for p in partitions if p not in begun]
    starts = await list_offsets(cluster, dict.fromkeys(fresh, EARLIEST)) if fresh else {}
    begun |= {p: at.offset for p, at in starts.items() if at is not None}
    return {p: max(0, at.offset - begun.get(p, 0)) if at else 0 for p, at in ends.items()}
