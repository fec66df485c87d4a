"""Where partitions begin and end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from partage.console.cluster import Cluster

Place: TypeAlias = tuple[str, int]
"""A topic and a partition of it."""


def offsets(cluster: Cluster, places: Iterable[Place], spec: OffsetSpec) -> dict[Place, int]:
    """The offset that ``spec`` asks for of each partition; those nobody can tell are left out."""
    asked = {TopicPartition(topic, partition): spec for topic, partition in places}
    if not asked:
        return {}
    answers = cluster.admin.list_offsets(asked, request_timeout=cluster.timeout_s)
    return {
        (place.topic, place.partition): answer.result().offset
        for place, answer in answers.items()
        if cluster.attempt(answer) is None
    }
