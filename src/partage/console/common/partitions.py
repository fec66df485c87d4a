"""Partitions in arguments, such as ``flights`` or ``flights:0,1``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError, usage_error
from partage.model.topic_partition import TopicPartition


def parse_topics(given: list[str]) -> dict[str, set[int] | None]:
    """Return partitions by topic, from texts such as ``flights`` (None: all) or ``flights:0,1``.

    Raises:
        CommandError: A text has another form.
    """
    wanted: dict[str, set[int] | None] = {}
    for text in given:
        topic, colon, numbers = text.partition(":")
        listed = numbers.split(",")
        if not topic or (colon and not all(re.fullmatch(r"[0-9]{1,9}", each) for each in listed)):
            raise usage_error(f"invalid --topic {text!r}; use TOPIC or TOPIC:0,1,2")
        before = wanted.get(topic, set())
        if not colon or before is None:
            wanted[topic] = None
        else:
            wanted[topic] = before | {int(each) for each in listed}
    return wanted


def resolve_partitions(
    cluster: ClusterClient, wanted: Mapping[str, set[int] | None]
) -> set[TopicPartition]:
    """Return the partitions that `parse_topics` describes.

    Raises:
        CommandError: A topic or a partition does not exist.
    """
    topics = cluster.require_topics(wanted).topics
    found = set[TopicPartition]()
    for topic, numbers in wanted.items():
        existing = set(topics[topic].partitions)
        missing = sorted((numbers or set()) - existing)
        if missing:
            raise CommandError(f"topic {topic} has no partition {', '.join(map(str, missing))}")
        found |= {
            TopicPartition(topic, number) for number in (existing if numbers is None else numbers)
        }
    return found


def require_partitions(
    cluster: ClusterClient, partitions: Iterable[TopicPartition]
) -> set[TopicPartition]:
    """Return the partitions, after a look at the cluster's metadata.

    Raises:
        CommandError: A topic or a partition does not exist.
    """
    by_topic = {
        topic: {number for _, number in group}
        for topic, group in groupby(sorted(partitions), key=lambda each: each[0])
    }
    return resolve_partitions(cluster, by_topic)
