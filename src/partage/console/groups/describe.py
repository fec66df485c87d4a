"""State and progress of groups, from their coordinators and from the leaders of partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from confluent_kafka.admin import OffsetSpec

from partage.client.group.offsets import OffsetAndMetadata
from partage.console.common.client_options import client_options
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError
from partage.console.common.offsets import list_offsets
from partage.console.common.suggestions import missing_names
from partage.console.groups import coordinated_groups, librdkafka_groups
from partage.console.groups.committed import CommittedOffsets, committed_offsets
from partage.console.groups.coordinated_groups import CoordinatedGroup, GroupsOfBrokers
from partage.console.groups.raw_groups import CONSUMER, UNKNOWN
from partage.model.groups import (
    GroupDescription,
    GroupListing,
    MemberDescription,
    Node,
    OffsetDescription,
    TopicPartitions,
)
from partage.model.topic_partition import TopicPartition

__all__ = [
    "CONSUMER",
    "UNKNOWN",
    "GroupDescription",
    "GroupListing",
    "MemberDescription",
    "Node",
    "OffsetDescription",
    "TopicPartitions",
    "describe_groups",
    "existing_groups",
    "fetch_group_list",
    "fetch_group_state",
    "fetch_groups",
    "missing_groups_error",
]


def fetch_groups(cluster: ClusterClient, names: Sequence[str]) -> dict[str, CoordinatedGroup]:
    """Return the existing groups of these names, without offsets.

    Raises:
        CommandError: A broker does not respond.
    """
    if client_options(cluster.properties, cluster.timeout_ms) is None:
        return librdkafka_groups.fetch_groups(cluster, list(names))
    return coordinated_groups.fetch_groups(cluster, names)


def fetch_group_list(cluster: ClusterClient) -> tuple[list[GroupListing], CommandError | None]:
    """Return the groups of all brokers that respond, by name.

    The second value is the error of a broker that did not respond; its groups are missing.
    """
    found = _fetch_all_groups(cluster)
    return [_listing(each) for each in found.groups.values()], found.failure


def _fetch_all_groups(cluster: ClusterClient, *, can_wait: bool = True) -> GroupsOfBrokers:
    if client_options(cluster.properties, cluster.timeout_ms) is None:
        return librdkafka_groups.fetch_all_groups(cluster)
    return coordinated_groups.fetch_all_groups(cluster, can_wait=can_wait)


def _listing(group: CoordinatedGroup) -> GroupListing:
    described = group.description
    is_described = group.raw is None or group.raw.is_described
    return GroupListing(
        described.group,
        described.protocol_type,
        described.type,
        described.state,
        len(described.members) if is_described else None,
    )


def missing_groups_error(cluster: ClusterClient, missing: list[str]) -> CommandError:
    """Return the error for groups that do not exist, with similar names that do."""
    return CommandError(missing_names("group", missing, existing_groups(cluster)))


def existing_groups(cluster: ClusterClient) -> list[str]:
    """Return the names of groups, to suggest similar ones; none if the brokers do not respond."""
    try:
        return list(_fetch_all_groups(cluster, can_wait=False).groups)
    except CommandError:
        return []


def describe_groups(cluster: ClusterClient, names: list[str] | None) -> list[GroupDescription]:
    """Return groups with members and offsets.

    Args:
        cluster: Cluster to ask.
        names: Groups; None for all groups.

    Raises:
        CommandError: A group does not exist, or a broker does not respond.
    """
    metadata = cluster.metadata()
    topics = metadata.topics
    if names is None:
        found, failure = _fetch_all_groups(cluster)
        if failure is not None:
            raise failure
        names = list(found)
    else:
        found = fetch_groups(cluster, names)
    missing = [name for name in names if name not in found]
    if missing:
        raise missing_groups_error(cluster, missing)
    groups = [found[name].description for name in names]
    committed = committed_offsets(cluster, names, metadata)
    wanted = {
        partition for group in groups for partition in (*committed[group.group], *_owners(group))
    }
    existing = sorted(
        partition
        for partition in wanted
        if partition.topic in topics and partition.partition in topics[partition.topic].partitions
    )
    ends = list_offsets(cluster, existing, OffsetSpec.latest())
    return [_with_offsets(group, committed[group.group], ends) for group in groups]


def fetch_group_state(cluster: ClusterClient, name: str) -> str | None:
    """Return the state of a group; None if it does not exist."""
    found = fetch_groups(cluster, [name]).get(name)
    return None if found is None else found.description.state


def _owners(group: GroupDescription) -> dict[TopicPartition, str]:
    return {
        TopicPartition(owned.topic, partition): member.member_id
        for member in group.members
        for owned in member.partitions
        for partition in owned.partitions
    }


def _epoch(commit: OffsetAndMetadata) -> int | None:
    return None if commit.leader_epoch < 0 else commit.leader_epoch


def _metadata(commit: OffsetAndMetadata) -> str:
    """Return the metadata of a commit without the NUL byte that confluent-kafka appends."""
    return commit.metadata.removesuffix("\0")


def _with_offsets(
    group: GroupDescription, committed: CommittedOffsets, ends: Mapping[TopicPartition, int]
) -> GroupDescription:
    owners = _owners(group)
    rows = []
    for partition in sorted({*committed, *owners}):
        commit = committed.get(partition)
        current = None if commit is None else commit.offset
        end = ends.get(partition)
        rows.append(
            OffsetDescription(
                topic=partition.topic,
                partition=partition.partition,
                current_offset=current,
                log_end_offset=end,
                lag=None if current is None or end is None else end - current,
                leader_epoch=None if commit is None else _epoch(commit),
                metadata=None if commit is None else _metadata(commit),
                member_id=owners.get(partition),
            )
        )
    total = sum(row.lag for row in rows if row.lag is not None)
    return msgspec.structs.replace(group, offsets=rows, total_lag=total)
