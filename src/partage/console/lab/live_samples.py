"""Read records of live partitions, of which a simulation writes copies."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as RdTopicPartition
from confluent_kafka.admin import OffsetSpec

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.offsets import list_offsets
from partage.lab.whatif.trial import SampleRecord
from partage.model.topic_partition import TopicPartition

#: Records of each partition.
_RECORDS_MAX: Final = 10
_POLL_S: Final = 0.1


def read_samples(
    cluster: ClusterClient, partitions: Iterable[TopicPartition]
) -> tuple[SampleRecord, ...]:
    """Return the newest records of each partition, in order.

    The consumer joins no group and commits nothing. Records that do not arrive in time are left
    out.
    """
    places = list(partitions)
    begins = list_offsets(cluster, places, OffsetSpec.earliest())
    ends = list_offsets(cluster, places, OffsetSpec.latest())
    starts = {
        place: max(begins[place], end - _RECORDS_MAX)
        for place, end in ends.items()
        if place in begins and end > begins[place]
    }
    if not starts:
        return ()
    consumer = cluster.consumer(
        {"group.id": "partage-whatif", "enable.auto.commit": False},  # librdkafka needs a group id
        {"enable.partition.eof": True, "enable.auto.offset.store": False},
    )
    try:
        consumer.assign([RdTopicPartition(*place, start) for place, start in starts.items()])
        left, found = set(starts), list[SampleRecord]()
        limit_s = time.monotonic() + cluster.timeout_s
        while left and time.monotonic() < limit_s:
            for message in consumer.consume(1_000, _POLL_S):
                place = TopicPartition(message.topic() or "", message.partition() or 0)
                error = message.error()
                if error is None:
                    found.append(_sample(place, message))
                    if (message.offset() or 0) + 1 >= ends[place]:
                        left.discard(place)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(place)
    finally:
        consumer.close()
    return tuple(sorted(found, key=lambda each: (each.topic, each.partition)))


def _sample(place: TopicPartition, message: Message) -> SampleRecord:
    headers: Any = message.headers() or ()
    return SampleRecord(
        topic=place.topic,
        partition=place.partition,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=tuple((name, _bytes(value)) for name, value in headers),
    )


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
