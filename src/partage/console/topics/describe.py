"""Details of topics: settings, partitions and their offsets."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import msgspec
from confluent_kafka import TopicCollection, TopicPartitionInfo, Uuid
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType, TopicDescription

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.offsets import list_offsets
from partage.console.common.suggestions import missing_names
from partage.model.topic_partition import TopicPartition


class PartitionDetails(msgspec.Struct, frozen=True):
    """A partition; brokers are ids. Without a leader, ``leader`` is -1 and the offsets are null."""

    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    earliest_offset: int | None
    latest_offset: int | None


class TopicDetails(msgspec.Struct, frozen=True):
    """A topic; ``configs`` contains the settings that differ from the defaults."""

    topic: str
    topic_id: str
    internal: bool
    replication_factor: int
    configs: dict[str, str]
    partitions: list[PartitionDetails]


def describe_topics(cluster: ClusterClient) -> list[TopicDescription]:
    """Return the descriptions of all topics, sorted by name."""
    names = sorted(cluster.metadata().topics)
    if not names:
        return []
    answers = cluster.admin.describe_topics(
        TopicCollection(names), request_timeout=cluster.timeout_s
    )
    return [cluster.result(answer) for answer in answers.values()]


def match_topics(names: Collection[str], patterns: Iterable[str], required: bool) -> list[str]:
    """Return the names that match one of the patterns.

    A pattern that is an existing name matches only that name, so that ``a.b`` does not match
    ``axb``. Otherwise it is a regular expression for the full name.

    Args:
        names: Names to match.
        patterns: Names or regular expressions.
        required: True if each pattern must match.

    Raises:
        CommandError: A pattern is not a valid regular expression, or a required pattern does not
            match.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        matched = [pattern] if pattern in names else match_pattern(names, pattern)
        if not matched and required:
            raise CommandError(missing_names("topic", [pattern], names))
        found |= dict.fromkeys(matched)
    return list(found)


def match_pattern(names: Collection[str], pattern: str) -> list[str]:
    """Return the names that a regular expression matches as a whole.

    Raises:
        CommandError: The pattern is not a valid regular expression.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise usage_error(f"{pattern!r} is not a valid regular expression: {error}") from error
    return [name for name in names if compiled.fullmatch(name)]


def topic_id_text(topic_id: Uuid) -> str:
    """Return a topic id as Kafka writes it: in URL-safe Base64. librdkafka uses ``+`` and ``/``."""
    return str(topic_id).replace("+", "-").replace("/", "_")


def topic_details(cluster: ClusterClient, topics: list[TopicDescription]) -> list[TopicDetails]:
    """Return topics with their settings and the offsets of their partitions."""
    with_leader = [
        TopicPartition(topic.name, each.id)
        for topic in topics
        for each in topic.partitions
        if _leader(each) >= 0
    ]
    earliest = list_offsets(cluster, with_leader, OffsetSpec.earliest())
    latest = list_offsets(cluster, earliest, OffsetSpec.latest())
    configs = _configs(cluster, [topic.name for topic in topics])
    return [
        TopicDetails(
            topic=topic.name,
            topic_id=topic_id_text(topic.topic_id),
            internal=topic.is_internal,
            replication_factor=replication_factor(topic),
            configs=configs[topic.name],
            partitions=[
                PartitionDetails(
                    partition=each.id,
                    leader=_leader(each),
                    replicas=[node.id for node in each.replicas],
                    isr=[node.id for node in each.isr],
                    earliest_offset=earliest.get(TopicPartition(topic.name, each.id)),
                    latest_offset=latest.get(TopicPartition(topic.name, each.id)),
                )
                for each in topic.partitions
            ],
        )
        for topic in topics
    ]


def replication_factor(topic: TopicDescription) -> int:
    """Return the replication factor: the largest number of replicas of a partition."""
    return max((len(each.replicas) for each in topic.partitions), default=0)


def _leader(partition: TopicPartitionInfo) -> int:
    # The leader is None if there is none, although its annotation says otherwise.
    return int(getattr(partition.leader, "id", -1))


def _configs(cluster: ClusterClient, names: list[str]) -> dict[str, dict[str, str]]:
    if not names:
        return {}
    answers = cluster.admin.describe_configs(
        [ConfigResource(ResourceType.TOPIC, name) for name in names],
        request_timeout=cluster.timeout_s,
    )
    return {
        resource.name: {
            entry.name: entry.value or ""
            for entry in sorted(cluster.result(answer).values(), key=lambda each: each.name)
            if not entry.is_default and not entry.is_sensitive
        }
        for resource, answer in answers.items()
    }
