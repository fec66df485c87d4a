"""What brokers of Partage tell of their groups, read as it comes: ``__group_events``."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from partage.console.common.cluster_client import ClusterClient, error_text
from partage.pipelines.rebalances.reported import event_of
from partage.store.group_events import TOPIC
from partage.web.cluster_history import ReceivedEvent
from partage.wire.primitives import Malformed

_NO_GROUP: Final = "partage-web"
"""librdkafka wants a group's name even where none is joined and nothing committed."""

#: How far back it is read at first, and at most so many records of each partition.
LOOKBACK_MS: Final = 24 * 60 * 60 * 1000
LOOKBACK_RECORDS_MAX: Final = 50_000
_PATIENCE_S: Final = 5.0
_LATER_S: Final = 1.0
_BATCH: Final = 1_000
#: How often it is looked whether there is a topic, or another partition of it.
_TOPIC_EVERY_S: Final = 10.0


class GroupEventsReader:
    """The events since the last `read`; none where there is no such topic, as in Apache Kafka."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._consumer: Consumer | None = None
        self._next: dict[int, int] = {}  # the offset to read next, by partition
        self._behind: set[int] = set()  # partitions whose end has not been seen yet
        self._look_again_s = 0.0
        #: Why there are no events although there is a topic.
        self.remark = ""

    def read(self) -> list[ReceivedEvent]:
        """What has come; blocks for a few seconds at first, and then for hardly any time.

        A topic that cannot be read is said in `remark`: the page does without it.
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
        """Read all partitions that there are; whether there are others than before."""
        if time.monotonic() < self._look_again_s:
            return False
        self._look_again_s = time.monotonic() + _TOPIC_EVERY_S
        topic = self._cluster.metadata().topics.get(TOPIC)
        # Of several brokers each holds one. What one holds that is down is read once it is back.
        led = [] if topic is None else [n for n, of in topic.partitions.items() if of.leader >= 0]
        new = sorted(set(led) - self._next.keys())
        if not new:
            return False
        if self._consumer is None:
            self._consumer = self._cluster.consumer(
                {"enable.auto.commit": False, "auto.offset.reset": "earliest"},
                {"group.id": _NO_GROUP, "enable.partition.eof": True},
            )
        self._next |= self._starts(self._consumer, new)
        # Assigning says anew where each begins, those that are read already among them.
        self._consumer.assign([TopicPartition(TOPIC, *each) for each in self._next.items()])
        return True

    def _starts(self, consumer: Consumer, partitions: Collection[int]) -> dict[int, int]:
        since_ms = int(time.time() * 1000) - LOOKBACK_MS
        asked = [TopicPartition(TOPIC, each, since_ms) for each in partitions]
        starts = {}
        for found in consumer.offsets_for_times(asked, timeout=self._cluster.timeout_s):
            place = TopicPartition(TOPIC, found.partition)
            low, high = consumer.get_watermark_offsets(place, timeout=self._cluster.timeout_s)
            since = found.offset if found.offset >= 0 else high
            starts[found.partition] = max(low, since, high - LOOKBACK_RECORDS_MAX)
        return starts

    def _read(self, consumer: Consumer) -> list[ReceivedEvent]:
        events: list[ReceivedEvent] = []
        give_up_s = time.monotonic() + (_PATIENCE_S if self._behind else _LATER_S)
        while True:
            # Once all ends were seen, only what is here already is taken: the rest comes next time.
            messages = consumer.consume(_BATCH, 0.05 if self._behind else 0)
            for message in messages:
                event = self._taken(message)
                if event is not None:
                    events.append(event)
            if time.monotonic() >= give_up_s or not (messages or self._behind):
                return events

    def _taken(self, message: Message) -> ReceivedEvent | None:
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
            return ReceivedEvent(event_of(value), value)
        except Malformed:
            return None  # whatever else somebody has written there, or figures that cannot be

    def _refused(self, why: str) -> None:
        self.remark = f"rebalances are detected by polling: {TOPIC} cannot be read ({why})"
