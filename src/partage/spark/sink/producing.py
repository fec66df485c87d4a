"""The producer of a write task: sends records and waits for every acknowledgement."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from partage.spark.sink.columns import ToWrite
from partage.spark.sink.options import WriteOptions

#: Maximum wait for a topic that the broker may be creating.
_CREATION_MS: Final = 10_000
_LOOK_S: Final = 0.1
_SERVED_EVERY: Final = 1_000
_NOT_YET: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError._UNKNOWN_TOPIC,
    }
)


class NotWritten(RuntimeError):
    """A broker rejected a record or did not acknowledge it; the message has the reason."""


class Sending:
    """A librdkafka producer that serves one task after another. Do not use it after a failure."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._trouble = ""
        self._failures: list[str] = []
        self._failed = 0
        self._partitions: dict[str, int] = {}
        try:
            self._producer = Producer(
                {
                    **dict(options.producer),
                    "delivery.report.only.error": True,
                    "on_delivery": self._told,
                    "error_cb": self._noted,
                }
            )
        except KafkaException as error:  # contradicting properties
            raise NotWritten(f"the producer rejected the options: {error.args[0].str()}") from None

    def send_all(self, records: Iterable[ToWrite]) -> int:
        """Send the records, wait for all acknowledgements, and return the number of records.

        Raises:
            WriteError: if a record was not acknowledged. Other records may have been written.
        """
        sent = 0
        for record in records:
            self._check_place(record)
            self._send(record)
            sent += 1
            if sent % _SERVED_EVERY == 0:
                self._producer.poll(0)
                self._raise_failures(sent)
        # delivery.timeout.ms limits each record, so this loop ends.
        while self._producer.flush(_LOOK_S * 10) and not self._failures:
            pass
        self._raise_failures(sent)
        return sent

    def end(self) -> None:
        """Drop all records that are not yet acknowledged."""
        self._producer.purge()
        self._producer.flush(1)

    def _send(self, record: ToWrite) -> None:
        settings: dict[str, Any] = (
            {} if record.partition is None else {"partition": record.partition}
        )
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    headers=record.headers or None,
                    **settings,
                )
                return
            except BufferError:  # the queue is full: wait for acknowledgements
                self._producer.poll(_LOOK_S)
                self._raise_failures(None)
            except KafkaException as error:
                raise NotWritten(self._why(error.args[0], record)) from None

    def _check_place(self, record: ToWrite) -> None:
        """Check that the topic and the partition exist, once for each topic."""
        partitions = self._partitions.get(record.topic)
        if partitions is None:
            partitions = self._partitions[record.topic] = self._look_up(record.topic)
        if record.partition is not None and record.partition >= partitions:
            # The topic may have got more partitions in the meantime.
            partitions = self._partitions[record.topic] = self._look_up(record.topic)
            if record.partition >= partitions:
                raise NotWritten(
                    f"a row names partition {record.partition} of {record.topic!r}, which has "
                    f"{partitions} partitions; drop the column partition to partition by key"
                )

    def _look_up(self, topic: str) -> int:
        """Return the partition count of a topic; the request creates it if the broker auto-creates."""
        began = time.monotonic()
        patience_s = self._options.max_block_ms / 1000
        creation_s = min(patience_s, _CREATION_MS / 1000)
        while True:
            waited_s = time.monotonic() - began
            try:
                found = self._producer.list_topics(topic, timeout=max(patience_s - waited_s, 0.01))
            except KafkaException as error:
                self._producer.poll(0)
                raise NotWritten(
                    f"no broker of {self._options.servers} answered within "
                    f"{self._options.max_block_ms} ms (kafka.max.block.ms): "
                    f"{self._trouble or error.args[0].str()}"
                ) from None
            described = found.topics[topic]
            if described.error is None:
                return len(described.partitions)
            if described.error.code() not in _NOT_YET:
                raise NotWritten(f"cannot write to {topic!r}: {described.error.str()}")
            if time.monotonic() - began >= creation_s:
                raise NotWritten(f"there is no topic {topic!r} at {self._options.servers}")
            time.sleep(_LOOK_S)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed += 1
            if not self._failures:
                where = f"{message.topic()}"
                self._failures.append(f"{where}: {_words(error, self._options)}")

    def _noted(self, error: KafkaError) -> None:
        self._trouble = error.str()

    def _raise_failures(self, sent: int | None) -> None:
        if self._failures:
            of = "" if sent is None else f" of {sent:,}"
            count = f"{self._failed:,}{of} records were not acknowledged"
            raise NotWritten(f"{count}; the first was for {self._failures[0]}")

    def _why(self, error: KafkaError, record: ToWrite) -> str:
        size = len(record.key or b"") + len(record.value or b"")
        return f"a record of {size:,} bytes for {record.topic}: {_words(error, self._options)}"


def _words(error: KafkaError, options: WriteOptions) -> str:
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        limit = dict(options.producer)["message.max.bytes"]
        return (
            f"it is larger than kafka.max.request.size ({limit}) or than the topic's "
            "max.message.bytes; raise both, or write smaller values"
        )
    if error.code() == KafkaError._MSG_TIMED_OUT:
        return "no broker acknowledged it within kafka.delivery.timeout.ms"
    return error.str()


# One producer for each process and options, because Spark's workers outlive their tasks. The key
# contains the process id: threads do not survive a fork, and Spark forks its workers.
_SENDING: Final[dict[tuple[int, WriteOptions], Sending]] = {}


def write_all(records: Iterable[ToWrite], options: WriteOptions) -> int:
    """Send all records with this process's producer and return their number.

    Raises:
        WriteError: if a record was not acknowledged.
    """
    key = os.getpid(), options
    sending = _SENDING.get(key)
    if sending is None:
        for pid, other in list(_SENDING):
            if pid != key[0] or other != options:
                del _SENDING[pid, other]
        sending = _SENDING[key] = Sending(options)
    try:
        return sending.send_all(records)
    except BaseException:
        del _SENDING[key]
        sending.end()
        raise
