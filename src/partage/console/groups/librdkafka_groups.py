"""Groups from librdkafka, for security properties that Partage's client cannot use.

librdkafka needs two requests. The older one (`AdminClient.list_groups`, deprecated) covers groups
of all protocol types, with the bytes of their members; it has no instance ids, and groups with the
consumer protocol (KIP-848) have only names. The newer one covers only consumer groups, without
epochs and targets.

librdkafka 2.16 aborts the process if a connection to a coordinator breaks at the wrong moment of
the newer request, of a deletion or of a commit (librdkafka issue 4605). So this module is only used
if nothing else can connect.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Final, cast

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
)
from confluent_kafka import TopicPartition as RdTopicPartition
from confluent_kafka.admin import ConsumerGroupDescription, ConsumerGroupListing
from confluent_kafka.admin import MemberDescription as RdMemberDescription

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError
from partage.console.groups.coordinated_groups import CoordinatedGroup, GroupsOfBrokers
from partage.console.groups.group_deletion import DOUBT, GroupDeletion
from partage.console.groups.raw_groups import CONSUMER, UNKNOWN, RawGroup, RawMember, describe_raw
from partage.model.errors import ErrorCode
from partage.model.groups import GroupDescription, MemberDescription, Node, TopicPartitions
from partage.model.topic_partition import TopicPartition

_STATES: Final = {
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
}


def fetch_groups(cluster: ClusterClient, names: list[str]) -> dict[str, CoordinatedGroup]:
    """Return the existing groups of these names, without offsets.

    Raises:
        CommandError: A broker does not respond.
    """
    raw = _raw_groups(cluster, names)
    consumers = _descriptions(cluster, names)
    return {
        name: _group(name, raw.get(name), consumers.get(name))
        for name in names
        if name in raw or name in consumers
    }


def fetch_all_groups(cluster: ClusterClient) -> GroupsOfBrokers:
    """Return the groups of all brokers that respond, without offsets.

    Raises:
        CommandError: No broker responds.
    """
    failure = None
    try:
        raw = _raw_groups(cluster, None)
    # One broker failed. The newer request returns the groups of the other brokers.
    except CommandError as error:
        raw, failure = {}, error
    answer = cluster.result(cluster.admin.list_consumer_groups(request_timeout=cluster.timeout_s))
    for each in answer.errors or []:
        failure = cluster.command_error(each)
    listed: dict[str, ConsumerGroupListing] = {each.group_id: each for each in answer.valid or []}
    described = _descriptions(cluster, sorted(listed))
    groups = {
        name: _group(name, raw.get(name), described.get(name))
        for name in sorted({*raw, *described})
    }
    return GroupsOfBrokers(groups, failure)


def delete_groups(cluster: ClusterClient, names: list[str]) -> dict[str, GroupDeletion]:
    """Delete groups. Return the result of each group.

    Raises:
        CommandError: A coordinator does not respond.
    """
    answers = cluster.admin.delete_consumer_groups(names, request_timeout=cluster.timeout_s)
    refusals = {name: cluster.refusal_of(answer, DOUBT) for name, answer in answers.items()}
    return {
        name: GroupDeletion(ErrorCode.NONE if refusal is None else refusal.code())
        for name, refusal in refusals.items()
    }


def commit_offsets(
    cluster: ClusterClient, group: str, offsets: Mapping[TopicPartition, int], doubt: str
) -> dict[TopicPartition, int]:
    """Commit offsets of a group without members. Return the error code of each partition.

    Args:
        cluster: Cluster of the group.
        group: Group; it is created if it does not exist.
        offsets: New offsets.
        doubt: Advice for a request without a response, which may have taken effect.

    Raises:
        CommandError: The coordinator does not respond.
    """
    partitions = [RdTopicPartition(*partition, offset) for partition, offset in offsets.items()]
    answers = cluster.admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, partitions)], request_timeout=cluster.timeout_s
    )
    refusal = cluster.refusal_of(answers[group], doubt)
    if refusal is not None:
        return dict.fromkeys(offsets, refusal.code())
    return {
        TopicPartition(each.topic, each.partition): int(ErrorCode.NONE)
        if each.error is None
        else each.error.code()
        for each in answers[group].result().topic_partitions or []
    }


def _raw_groups(cluster: ClusterClient, names: list[str] | None) -> dict[str, RawGroup]:
    """Return existing groups by name; all groups if ``names`` is None."""
    one = {"group": names[0]} if names is not None and len(names) == 1 else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            found: list[Any] = cluster.admin.list_groups(timeout=cluster.timeout_s, **one)
    except KafkaException as error:
        raise cluster.command_error(error) from error
    return {each.id: _raw(each) for each in found if names is None or each.id in names}


def _raw(group: Any) -> RawGroup:
    return RawGroup(
        is_described=group.error is None
        and (group.state not in ("", "Dead") or bool(group.members)),
        state=group.state,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        coordinator=_node(group.broker),
        members=[
            RawMember(
                member_id=each.id,
                instance_id=None,
                client_id=each.client_id,
                host=each.client_host,
                metadata=each.metadata or b"",
                assignment=each.assignment or b"",
            )
            for each in group.members
        ],
    )


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


def _group(
    name: str, raw: RawGroup | None, consumer: ConsumerGroupDescription | None
) -> CoordinatedGroup:
    if consumer is None or (raw is not None and raw.is_described):
        assert raw is not None  # The group is in one of the two results.
        described = consumer.members if consumer else []
        instances = {each.member_id: each.group_instance_id for each in described}
        raw = raw._replace(
            members=[
                each._replace(instance_id=instances.get(each.member_id)) for each in raw.members
            ]
        )
        return CoordinatedGroup(describe_raw(name, raw), raw)
    description = GroupDescription(
        group=name,
        protocol_type=CONSUMER,
        type="Consumer"
        if cast(ConsumerGroupType, consumer.type) is ConsumerGroupType.CONSUMER
        else None,
        protocol=consumer.partition_assignor or None,
        state=_STATES.get(cast(ConsumerGroupState, consumer.state), UNKNOWN),
        coordinator=_node(consumer.coordinator),
        members=[_member(each) for each in consumer.members],
        offsets=[],
        total_lag=0,
    )
    return CoordinatedGroup(description, None)


def _member(member: RdMemberDescription) -> MemberDescription:
    by_topic: dict[str, list[int]] = {}
    for each in member.assignment.topic_partitions:
        by_topic.setdefault(each.topic, []).append(each.partition)
    return MemberDescription(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.host,
        partitions=[
            TopicPartitions(topic, sorted(numbers)) for topic, numbers in sorted(by_topic.items())
        ],
        subscription=None,
        metadata_bytes=None,
        assignment_bytes=None,
    )


def _node(node: object) -> Node | None:
    number = getattr(node, "id", None)
    if number is None:
        return None
    return Node(int(number), str(getattr(node, "host", "")), int(getattr(node, "port", -1)))
