"""Records of groups in ``__consumer_offsets``, in Kafka's formats.

Only these records name the leader of a group. Apache Kafka and Partage write one for each
generation, and any client with read access to the topic can read it.
"""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from partage.console.common.cluster_client import ClusterClient, error_text
from partage.console.common.output import note
from partage.coordinator.records import GroupRecord
from partage.store.record_formats import decode_record
from partage.store.shard_log import shard_of
from partage.wire.primitives import MalformedError

_TOPIC: Final = "__consumer_offsets"
_NO_GROUP: Final = "partage-explain"
"""librdkafka requires a group id, even if no group is joined."""

_LOOK_FIRST: Final = 1_000
_LOOK_BACK_MAX: Final = 100_000
_BATCH: Final = 1_000


def read_last_generation(cluster: ClusterClient, group: str) -> GroupRecord | None:
    """Return the last stored record of a group; None if it cannot be found or read.

    The topic is read backwards from its end in growing windows, up to 100,000 offsets. A group
    whose last rebalance is further back, behind many commits, is not found.
    """
    topic = cluster.metadata().topics.get(_TOPIC)
    if topic is None or not topic.partitions:
        return None
    shard = shard_of(group, len(topic.partitions))
    consumer = cluster.consumer(
        {"group.id": _NO_GROUP, "enable.auto.commit": False}, {"enable.partition.eof": True}
    )
    try:
        return _searched(consumer, shard, group, cluster.timeout_s)
    except KafkaException as error:
        refusal = error.args[0]
        why = error_text(refusal) if isinstance(refusal, KafkaError) else str(error)
        note(f"leader unknown: cannot read {_TOPIC}: {why}")
        return None
    finally:
        consumer.close()


def _searched(consumer: Consumer, shard: int, group: str, within_s: float) -> GroupRecord | None:
    low, high = consumer.get_watermark_offsets(TopicPartition(_TOPIC, shard), timeout=within_s)
    give_up = time.monotonic() + within_s
    until, window = high, _LOOK_FIRST
    while until > low and window <= _LOOK_BACK_MAX:
        since = max(low, high - window)
        found = None
        for message in _between(consumer, shard, since, until, give_up):
            saved = _saved(message)
            if saved is not None and saved.group_id == group:
                found = saved
        if found is not None or time.monotonic() >= give_up:
            return found
        until, window = since, 10 * window
    return None


def _between(
    consumer: Consumer, shard: int, since: int, until: int, give_up: float
) -> list[Message]:
    """Return the records in a range of offsets; fewer if the time is up."""
    consumer.assign([TopicPartition(_TOPIC, shard, since)])
    read: list[Message] = []
    while time.monotonic() < give_up:
        for message in consumer.consume(_BATCH, 0.1):
            error = message.error()
            if error is None:
                if (message.offset() or 0) >= until:
                    return read
                read.append(message)
                if (message.offset() or 0) == until - 1:
                    return read
            elif error.code() == KafkaError._PARTITION_EOF:
                return read
            elif not error.retriable():
                raise KafkaException(error)
    return read


def _saved(message: Message) -> GroupRecord | None:
    try:
        record = decode_record(message.key() or b"", message.value())
    except MalformedError:
        return None
    return record if isinstance(record, GroupRecord) else None
