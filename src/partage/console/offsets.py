"""Where partitions begin and end."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import wait
from time import monotonic, sleep
from typing import Final, TypeAlias

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from partage.console.cluster import Cluster

Place: TypeAlias = tuple[str, int]
"""A topic and a partition of it."""


#: A topic that was just made has no leaders for a moment, nor has one whose broker went away.
ELECTION_S: Final = 5.0
_PAUSE_S: Final = 0.1
#: The answer for a time that all records are older than. What is less is librdkafka's own, such as
#: -1001 of a partition whose broker is away.
NO_RECORD: Final = -1


def offsets(
    cluster: Cluster, places: Iterable[Place], spec: OffsetSpec, *, patience_s: float = 0.0
) -> dict[Place, int]:
    """The offset that ``spec`` asks for of each partition; those nobody can tell are left out.

    Those without a leader are asked for again until ``patience_s`` seconds are over, or the
    command's own time is. A time that no record is as young as gives `NO_RECORD`.
    """
    give_up = monotonic() + min(patience_s, cluster.timeout_s)
    asked, found = list(places), dict[Place, int]()
    while asked:
        found |= _offsets(cluster, asked, spec)
        asked = [place for place in asked if place not in found]
        if monotonic() >= give_up:
            break
        if asked:
            sleep(_PAUSE_S)
    return found


def _offsets(cluster: Cluster, places: Iterable[Place], spec: OffsetSpec) -> dict[Place, int]:
    asked = {TopicPartition(topic, partition): spec for topic, partition in places}
    answers = cluster.admin.list_offsets(asked, request_timeout=cluster.timeout_s)
    # librdkafka looks for the leaders first, and takes the whole time for either.
    wait(answers.values(), 2 * cluster.timeout_s)
    found = {
        (place.topic, place.partition): answer.result().offset
        for place, answer in answers.items()
        if cluster.attempt(answer) is None
    }
    return {place: offset for place, offset in found.items() if offset >= NO_RECORD}
