"""State of groups, from two kinds of librdkafka requests.

The older requests (`partage.console.groups.raw_groups`) cover groups of all protocol types. The
newer ones cover only consumer groups, but include instance ids, partitions and KIP-848 groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

import msgspec
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupType,
)
from confluent_kafka.admin import (
    ConsumerGroupDescription,
    ConsumerGroupListing,
    OffsetSpec,
)
from confluent_kafka.admin import MemberDescription as RdMemberDescription

from partage.client.group.offsets import OffsetAndMetadata
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError
from partage.console.common.offsets import list_offsets
from partage.console.groups.committed import CommittedOffsets, committed_offsets
from partage.console.groups.raw_groups import RawGroup, RawMember, raw_groups
from partage.model.groups import (
    GroupDescription,
    GroupListing,
    MemberDescription,
    Node,
    OffsetDescription,
    TopicPartitions,
)
from partage.model.topic_partition import TopicPartition
from partage.wire.consumer_protocol import Subscription, decode_subscription
from partage.wire.primitives import MalformedError

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
    "fetch_group_list",
    "fetch_group_state",
]

CONSUMER: Final = "consumer"
UNKNOWN: Final = "Unknown"
_STATES: Final = {
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
}
_TYPES: Final = {ConsumerGroupType.CLASSIC: "Classic", ConsumerGroupType.CONSUMER: "Consumer"}


def fetch_group_list(cluster: ClusterClient) -> tuple[list[GroupListing], CommandError | None]:
    """Return the groups of all brokers that respond, by name.

    The second value is the error of a broker that did not respond; its groups are missing.
    """
    cluster.metadata()
    failure = None
    try:
        raw = raw_groups(cluster, None)
    # One broker failed. The newer request returns the groups of the other brokers.
    except CommandError as without:
        raw, failure = {}, without
    answer = cluster.result(cluster.admin.list_consumer_groups(request_timeout=cluster.timeout_s))
    for error in answer.errors or []:
        failure = cluster.command_error(error)
    consumers = {each.group_id: each for each in answer.valid or []}
    names = sorted({*raw, *consumers})
    return [_line(name, raw.get(name), consumers.get(name)) for name in names], failure


def _line(name: str, raw: RawGroup | None, listing: ConsumerGroupListing | None) -> GroupListing:
    if listing is not None and listing.type is ConsumerGroupType.CONSUMER:
        return GroupListing(name, CONSUMER, "Consumer", _state(listing), None)
    if raw is None and listing is not None:
        return GroupListing(name, None, _type(listing), _state(listing), None)
    if raw is None or not raw.is_described:
        return GroupListing(name, None, None, UNKNOWN, None)
    return GroupListing(name, raw.protocol_type or None, "Classic", raw.state, len(raw.members))


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
    raw = raw_groups(cluster, names)
    if names is None:
        names = sorted(raw)
    consumers = _descriptions(cluster, names)
    missing = [name for name in names if name not in raw and name not in consumers]
    if missing:
        raise CommandError(f"no such group: {', '.join(missing)}")
    groups = [
        _consumer_group(name, consumers[name], raw.get(name))
        if name in consumers
        else _other_group(name, raw[name])
        for name in names
    ]
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
    cluster.metadata()
    raw = raw_groups(cluster, [name]).get(name)
    consumer = _descriptions(cluster, [name]).get(name)
    if consumer is not None:
        return _state(consumer)
    if raw is None:
        return None
    return raw.state if raw.is_described else UNKNOWN


def _descriptions(cluster: ClusterClient, names: list[str]) -> dict[str, ConsumerGroupDescription]:
    """Return the descriptions of those groups that are consumer groups."""
    if not names:
        return {}
    answers = cluster.admin.describe_consumer_groups(names, request_timeout=cluster.timeout_s)
    found = {
        name: answer.result()
        for name, answer in answers.items()
        if cluster.refusal_of(answer) is None
    }
    return {name: each for name, each in found.items() if each.state is not ConsumerGroupState.DEAD}


def _consumer_group(
    name: str, description: ConsumerGroupDescription, raw: RawGroup | None
) -> GroupDescription:
    brought = {each.member_id: each for each in raw.members} if raw else {}
    kind = _type(description)
    return GroupDescription(
        group=name,
        protocol_type=CONSUMER
        if kind == "Consumer"
        else (raw.protocol_type or None if raw else None),
        type=kind,
        protocol=description.partition_assignor or None,
        state=_state(description),
        coordinator=_node(description.coordinator),
        members=[_consumer(each, brought.get(each.member_id)) for each in description.members],
        offsets=[],
        total_lag=0,
    )


def _other_group(name: str, raw: RawGroup) -> GroupDescription:
    return GroupDescription(
        group=name,
        protocol_type=raw.protocol_type or None,
        type="Classic" if raw.is_described else None,
        protocol=raw.protocol or None,
        state=raw.state if raw.is_described else UNKNOWN,
        coordinator=_node(raw.broker),
        members=[
            MemberDescription(
                member_id=each.member_id,
                group_instance_id=None,
                client_id=each.client_id,
                host=each.host,
                partitions=[],
                subscription=None,
                metadata_bytes=len(each.metadata),
                assignment_bytes=len(each.assignment),
            )
            for each in raw.members
        ],
        offsets=[],
        total_lag=0,
    )


def _consumer(member: RdMemberDescription, raw: RawMember | None) -> MemberDescription:
    by_topic: dict[str, list[int]] = {}
    for each in member.assignment.topic_partitions:
        by_topic.setdefault(each.topic, []).append(each.partition)
    subscription = _subscription(raw.metadata) if raw else None
    return MemberDescription(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.host,
        partitions=[
            TopicPartitions(topic, sorted(numbers)) for topic, numbers in sorted(by_topic.items())
        ],
        subscription=None if subscription is None else sorted(subscription.topics),
        metadata_bytes=len(raw.metadata) if raw else None,
        assignment_bytes=len(raw.assignment) if raw else None,
        rack=None if subscription is None else subscription.rack_id,
    )


def _subscription(metadata: bytes) -> Subscription | None:
    try:
        return decode_subscription(metadata)
    except MalformedError:
        return None


def _state(group: ConsumerGroupListing | ConsumerGroupDescription) -> str:
    return _STATES.get(cast(ConsumerGroupState, group.state), UNKNOWN)


def _type(group: ConsumerGroupListing | ConsumerGroupDescription) -> str | None:
    return _TYPES.get(cast(ConsumerGroupType, group.type))


def _node(node: object) -> Node | None:
    number = getattr(node, "id", None)
    if number is None:
        return None
    return Node(int(number), str(getattr(node, "host", "")), int(getattr(node, "port", -1)))


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
