"""Records on their way to a topic, and what became of each."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import TopicMetadata

from partage.console.common.cluster_client import ClusterClient, error_text
from partage.console.common.errors import CommandError
from partage.console.common.offsets import ELECTION_WAIT_S
from partage.console.common.output import note
from partage.console.common.signals import StopRequest
from partage.console.records.record_json import ProducerRecord

_LISTED: Final = 100
"""Failed records that are kept by name; the rest are counted."""
_TOLD: Final = 10
"""Failed records that are told of as it happens."""
_CONNECTING_S: Final = 0.05
_AUTO_CREATION_S: Final = 2.0
_NOT_YET: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError._UNKNOWN_TOPIC,
    }
)


class DeliveryFailure(msgspec.Struct, frozen=True):
    """A record that did not arrive: where it stood, and why."""

    source: str
    line: int
    error: str


class TopicProducer:
    """A producer for one topic that counts what it sends and keeps what failed.

    Raises:
        Failure: the cluster cannot be reached, or has no such topic and makes none.
    """

    def __init__(
        self, cluster: ClusterClient, producer: Producer, topic: str, stop: StopRequest
    ) -> None:
        self.sent = 0
        self._bytes = 0
        self.failed: list[DeliveryFailure] = []
        self.failed_count = 0
        self._cluster = cluster
        self._producer = producer
        self._topic = topic
        self._stop = stop
        # librdkafka asks for a producer id as soon as it is connected. Metadata asked for before
        # that makes it change connections and try again only half a second later.
        producer.poll(_CONNECTING_S)
        self.partitions = len(self._found().partitions)

    @property
    def delivered(self) -> int:
        """Records that are in the topic, once `finish` is through; until then, at most these."""
        return self.sent - self.failed_count

    @property
    def delivered_bytes(self) -> int:
        """Keys and values of the same records."""
        return self._bytes

    def require_leader(self, partition: int) -> None:
        """Wait a moment for one: a topic that was just made has none yet.

        Raises:
            Failure: nobody leads the partition, so that its records would wait to no avail.
        """
        deadline = time.monotonic() + min(ELECTION_WAIT_S, self._cluster.timeout_s)
        while self._found().partitions[partition].leader < 0 and not self._stop:
            if time.monotonic() >= deadline:
                raise CommandError(
                    f"partition {partition} of {self._topic} has no leader; start its broker, "
                    "or choose another partition with -p"
                )
            self._producer.poll(0.1)

    def _found(self) -> TopicMetadata:
        """The topic. Asking creates it, where the broker creates topics on its own."""
        deadline = time.monotonic() + min(_AUTO_CREATION_S, self._cluster.timeout_s)
        while True:
            try:
                metadata = self._producer.list_topics(self._topic, timeout=self._cluster.timeout_s)
            except KafkaException as error:
                self._producer.poll(0)
                raise self._cluster.command_error(error) from error
            topic: TopicMetadata = metadata.topics[self._topic]
            if topic.error is None:
                return topic
            if topic.error.code() not in _NOT_YET:
                raise CommandError(f"cannot produce to {self._topic}: {error_text(topic.error)}")
            if time.monotonic() >= deadline or self._stop:
                raise CommandError(
                    f"no such topic: {self._topic}; create it with: "
                    f"partage topics create --topic {self._topic}"
                )
            self._producer.poll(0.1)

    def send(self, record: ProducerRecord, source: str, line: int) -> None:
        """Hand a record over, waiting while there is no room for it."""
        held = len(record.value or b"") + len(record.key or b"")
        settings: dict[str, Any] = {}
        if record.partition is not None:
            settings["partition"] = record.partition
        if record.timestamp_ms is not None:
            settings["timestamp"] = record.timestamp_ms
        if record.headers:
            settings["headers"] = list(record.headers)
        while not self._stop:
            try:
                self._producer.produce(
                    self._topic,
                    record.value,
                    record.key,
                    on_delivery=partial(self._fail, source, line, held),
                    **settings,
                )
            except BufferError:
                self._producer.poll(0.1)
                continue
            except KafkaException as error:
                self._fail(source, line, held, KafkaError(error.args[0].code()), None)
            self.sent += 1
            self._bytes += held
            return

    def _fail(
        self, source: str, line: int, held: int, error: KafkaError | None, _: Message | None
    ) -> None:
        if error is None:
            return
        self.failed_count += 1
        self._bytes -= held
        if len(self.failed) < _LISTED:
            self.failed.append(DeliveryFailure(source, line, error_text(error)))
        if self.failed_count <= _TOLD:
            note(f"not delivered: line {line} of {source}: {error_text(error)}")

    def poll(self) -> None:
        """Hear of failures."""
        self._producer.poll(0)

    def flush(self, wait_s: float) -> bool:
        """Wait for acknowledgements; True once none is owed."""
        return self._producer.flush(wait_s) == 0

    def purge(self) -> None:
        """Count as failed what is not acknowledged yet."""
        self._producer.purge()
        self._producer.flush(1)
