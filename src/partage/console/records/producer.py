"""Producer for one topic, which counts its records and failures."""

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
from partage.console.common.suggestions import missing_names
from partage.console.records.record_json import ProducerRecord

_LISTED: Final = 100
"""Number of failed records that are listed; more are only counted."""
_TOLD: Final = 10
"""Number of failed records that are reported immediately."""
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
    """A record that was not delivered: its source, its line number and the error."""

    source: str
    line: int
    error: str


class TopicProducer:
    """Producer for one topic that counts records and keeps failures.

    Raises:
        CommandError: The cluster is unreachable, or the topic does not exist and is not created.
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
        # librdkafka requests a producer id when it connects. A metadata request before that makes
        # it reconnect, with a delay of half a second.
        producer.poll(_CONNECTING_S)
        self.partitions = len(self._found().partitions)

    @property
    def delivered(self) -> int:
        """Number of records without a failure; final after `flush` returned True."""
        return self.sent - self.failed_count

    @property
    def delivered_bytes(self) -> int:
        """Bytes of keys and values of these records."""
        return self._bytes

    def require_leader(self, partition: int) -> None:
        """Wait for the leader of a partition; a new topic has none at first.

        Raises:
            CommandError: The partition has no leader, so its records could not be delivered.
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
        """Return the topic's metadata.

        The request creates the topic if the broker creates topics automatically.
        """
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
                message = missing_names("topic", [self._topic], self._cluster.metadata().topics)
                joint = " To create it:" if message.endswith("?") else "; create it with:"
                raise CommandError(f"{message}{joint} partage topics create {self._topic}")
            self._producer.poll(0.1)

    def send(self, record: ProducerRecord, source: str, line: int) -> None:
        """Queue a record, waiting while the queue is full.

        Args:
            record: Record to send.
            source: Name of its file, for failures.
            line: Its line number, for failures.
        """
        size = len(record.value or b"") + len(record.key or b"")
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
                    on_delivery=partial(self._fail, source, line, size),
                    **settings,
                )
            except BufferError:
                self._producer.poll(0.1)
                continue
            except KafkaException as error:
                self._fail(source, line, size, KafkaError(error.args[0].code()), None)
            self.sent += 1
            self._bytes += size
            return

    def _fail(
        self, source: str, line: int, size: int, error: KafkaError | None, _: Message | None
    ) -> None:
        if error is None:
            return
        self.failed_count += 1
        self._bytes -= size
        if len(self.failed) < _LISTED:
            self.failed.append(DeliveryFailure(source, line, error_text(error)))
        if self.failed_count <= _TOLD:
            note(f"not delivered: line {line} of {source}: {error_text(error)}")

    def poll(self) -> None:
        """Process delivery reports."""
        self._producer.poll(0)

    def flush(self, wait_s: float) -> bool:
        """Wait for acknowledgements. True if none is outstanding."""
        return self._producer.flush(wait_s) == 0

    @property
    def unacknowledged(self) -> int:
        """Number of records without a delivery report."""
        return len(self._producer)

    def purge(self) -> None:
        """Count all unacknowledged records as failed."""
        self._producer.purge()
        self._producer.flush(1)
