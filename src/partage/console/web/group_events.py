"""Reader of ``__group_events``, in which Partage brokers report events of their groups."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from partage.console.common.cluster_client import ClusterClient, error_text
from partage.pipelines.rebalances.event_decoder import parse_event
from partage.store.group_events import TOPIC
from partage.web.cluster_history import ReceivedEvent
from partage.wire.primitives import MalformedError

_NO_GROUP: Final = "partage-web"
"""librdkafka requires a group id, even if no group is joined and no offset is committed."""

#: Limits of the first read: age in ms, and number of records of each partition.
LOOKBACK_MS: Final = 24 * 60 * 60 * 1000
LOOKBACK_RECORDS_MAX: Final = 50_000
_PATIENCE_S: Final = 5.0
_LATER_S: Final = 1.0
_BATCH: Final = 1_000
#: Interval of checking for the topic and for new partitions of it, in seconds.
_TOPIC_EVERY_S: Final = 10.0


class GroupEventsReader:
    """Reader of new group events; finds none if the topic does not exist, as in Apache Kafka."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._consumer: Consumer | None = None
        self._next: dict[int, int] = {}  # The next offset to read, by partition.
        self._behind: set[int] = set()  # Partitions that were not yet read to their end.
        self._look_again_s = 0.0
        #: Reason for missing events although the topic exists; empty if there is none.
        self.remark = ""

    def read(self) -> list[ReceivedEvent]:
        """Return the events since the last call.

        The first call blocks for up to a few seconds, later calls only briefly. If the topic cannot
        be read, `remark` says why, and the page works without events.
        """
        try:
            is_new = self._keep_assigned()
            if self._consumer is None:
                return []
            if is_new:
                self._behind = set(self._next)
            return self._read(self._consumer)
        except KafkaException as error:
            refusal = error.args[0]
            self._refused(error_text(refusal) if isinstance(refusal, KafkaError) else str(error))
            return []

    def _keep_assigned(self) -> bool:
        """Assign all partitions with a leader. True if partitions were added."""
        if time.monotonic() < self._look_again_s:
            return False
        self._look_again_s = time.monotonic() + _TOPIC_EVERY_S
        topic = self._cluster.metadata().topics.get(TOPIC)
        # In a cluster each broker leads one partition. The partition of a broker that is down is
        # read when the broker is back.
        with_leader = (
            [] if topic is None else [n for n, of in topic.partitions.items() if of.leader >= 0]
        )
        new = sorted(set(with_leader) - self._next.keys())
        if not new:
            return False
        if self._consumer is None:
            self._consumer = self._cluster.consumer(
                {"enable.auto.commit": False, "auto.offset.reset": "earliest"},
                {"group.id": _NO_GROUP, "enable.partition.eof": True},
            )
        self._next |= self._starts(self._consumer, new)
        # An assignment replaces all positions, including those of partitions that are already read.
        self._consumer.assign([TopicPartition(TOPIC, *each) for each in self._next.items()])
        return True

    def _starts(self, consumer: Consumer, partitions: Collection[int]) -> dict[int, int]:
        since_ms = int(time.time() * 1000) - LOOKBACK_MS
        # The ends come before the look-up of times. Otherwise an event that is written between both
        # requests would be skipped: the look-up finds none, and the end is after the event.
        bounds = {
            each: consumer.get_watermark_offsets(
                TopicPartition(TOPIC, each), timeout=self._cluster.timeout_s
            )
            for each in partitions
        }
        lookups = [TopicPartition(TOPIC, each, since_ms) for each in partitions]
        starts = {}
        for found in consumer.offsets_for_times(lookups, timeout=self._cluster.timeout_s):
            low, high = bounds[found.partition]
            since = found.offset if found.offset >= 0 else high
            starts[found.partition] = max(low, since, high - LOOKBACK_RECORDS_MAX)
        return starts

    def _read(self, consumer: Consumer) -> list[ReceivedEvent]:
        events: list[ReceivedEvent] = []
        give_up_s = time.monotonic() + (_PATIENCE_S if self._behind else _LATER_S)
        while True:
            # After the ends were reached, take only records that were already fetched. The rest
            # follows at the next call.
            messages = consumer.consume(_BATCH, 0.05 if self._behind else 0)
            for message in messages:
                event = self._parsed(message)
                if event is not None:
                    events.append(event)
            if time.monotonic() >= give_up_s or not (messages or self._behind):
                return events

    def _parsed(self, message: Message) -> ReceivedEvent | None:
        partition, error = message.partition() or 0, message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._behind.discard(partition)
                self.remark = ""
            elif not error.retriable():
                self._refused(error_text(error))
                self._behind.discard(partition)
            return None
        self._next[partition] = (message.offset() or 0) + 1
        value = message.value() or b""
        try:
            return ReceivedEvent(parse_event(value), value)
        except MalformedError:
            return None  # Not an event, or an event with impossible values.

    def _refused(self, why: str) -> None:
        self.remark = f"rebalances are detected by polling: {TOPIC} cannot be read ({why})"
