"""Lookup of first, last and timestamp-based offsets of partitions."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import wait
from time import monotonic, sleep
from typing import Final

from confluent_kafka import TopicPartition as RdTopicPartition
from confluent_kafka.admin import OffsetSpec

from partage.console.common.cluster_client import ClusterClient
from partage.model.topic_partition import TopicPartition

#: Maximum wait for a leader: a new topic has no leaders at first, nor has the topic of a failed
#: broker.
ELECTION_WAIT_S: Final = 5.0
_PAUSE_S: Final = 0.1
#: Offset of a timestamp that is later than all records. librdkafka uses smaller numbers for itself,
#: such as -1001 for a partition whose broker is down.
NO_RECORD: Final = -1


def list_offsets(
    cluster: ClusterClient,
    partitions: Iterable[TopicPartition],
    spec: OffsetSpec,
    *,
    patience_s: float = 0.0,
) -> dict[TopicPartition, int]:
    """Return the offset that ``spec`` asks for, by partition.

    Partitions without a result are omitted.

    Args:
        cluster: Cluster to ask.
        partitions: Partitions.
        spec: Earliest, latest, or a timestamp. A timestamp after the last record gives `NO_RECORD`.
        patience_s: Seconds to retry partitions without a leader, at most the command's timeout.
    """
    give_up = monotonic() + min(patience_s, cluster.timeout_s)
    missing, found = list(partitions), dict[TopicPartition, int]()
    while missing:
        found |= _offsets(cluster, missing, spec)
        missing = [each for each in missing if each not in found]
        if monotonic() >= give_up:
            break
        if missing:
            sleep(_PAUSE_S)
    return found


def _offsets(
    cluster: ClusterClient, partitions: Iterable[TopicPartition], spec: OffsetSpec
) -> dict[TopicPartition, int]:
    specs = {RdTopicPartition(topic, partition): spec for topic, partition in partitions}
    answers = cluster.admin.list_offsets(specs, request_timeout=cluster.timeout_s)
    # librdkafka looks up the leaders first; each of the two steps may take the whole timeout.
    wait(answers.values(), 2 * cluster.timeout_s)
    found = {
        TopicPartition(partition.topic, partition.partition): answer.result().offset
        for partition, answer in answers.items()
        if cluster.refusal_of(answer) is None
    }
    return {partition: offset for partition, offset in found.items() if offset >= NO_RECORD}
