"""The producer of a write task: sends records and waits for every acknowledgement."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from partage.spark.sink.columns import SinkRecord
from partage.spark.sink.errors import WriteError
from partage.spark.sink.options import WriteOptions

#: Maximum wait for a topic that the broker may be creating.
_CREATION_MS: Final = 10_000
_POLL_S: Final = 0.1
#: Longest time to abort the transaction of a failed task.
_ABORT_S: Final = 5.0
_POLL_EVERY_RECORDS: Final = 1_000
_RETRIABLE_ERRORS: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError._UNKNOWN_TOPIC,
    }
)


T = TypeVar("T")


class TaskProducer:
    """A librdkafka producer that serves one task after another. Do not use it after a failure.

    With a transactional id, it serves one task only: it starts a transaction and leaves it open.
    """

    def __init__(self, options: WriteOptions, transactional_id: str | None = None) -> None:
        self._options = options
        self._transactional_id = transactional_id
        self._last_error = ""
        self._failures: list[str] = []
        self._failure_count = 0
        self._partitions: dict[str, int] = {}
        try:
            self._producer = Producer(
                {
                    **dict(options.producer),
                    **_transaction_settings(options, transactional_id),
                    "delivery.report.only.error": True,
                    "on_delivery": self._on_delivery,
                    "error_cb": self._on_error,
                }
            )
        except KafkaException as error:  # contradicting properties
            raise WriteError(f"the producer rejected the options: {error.args[0].str()}") from None

    def begin(self, on_initialized: Callable[[], T]) -> T:
        """Abort the open transaction of the transactional id, and begin one.

        Args:
            on_initialized: is called before the transaction begins; its result is returned.

        Raises:
            WriteError: if the coordinator does not answer in time, or refuses the producer.
        """
        deadline = time.monotonic() + self._options.max_block_ms / 1000
        while True:
            try:
                self._producer.init_transactions(max(deadline - time.monotonic(), 0.01))
                result = on_initialized()
                self._producer.begin_transaction()
            except KafkaException as error:
                reason = error.args[0]
                if not reason.retriable() or time.monotonic() >= deadline:
                    raise WriteError(
                        f"transactional id {self._transactional_id!r} cannot be initialized: "
                        f"{self._last_error or reason.str()}"
                    ) from None
            else:
                return result

    def send_all(self, records: Iterable[SinkRecord]) -> int:
        """Send the records, wait for all acknowledgements, and return the number of records.

        Raises:
            WriteError: if a record was not acknowledged. Other records may have been written.
        """
        sent = 0
        for record in records:
            self._check_partition(record)
            self._send(record)
            sent += 1
            if sent % _POLL_EVERY_RECORDS == 0:
                self._producer.poll(0)
                self._raise_failures(sent)
        # delivery.timeout.ms limits each record, so this loop ends.
        while self._producer.flush(_POLL_S * 10) and not self._failures:
            pass
        self._raise_failures(sent)
        return sent

    def ensure_topic(self, topic: str) -> None:
        """Let the broker create a missing topic.

        Raises:
            WriteError: if the topic does not exist after ten seconds, or may not be written.
        """
        self._partitions[topic] = self._fetch_partition_count(topic)

    def discard(self) -> None:
        """Drop all records that are not yet acknowledged, and abort an open transaction."""
        self._producer.purge()
        self._producer.flush(1)
        if self._transactional_id is not None:
            # Without an answer, the driver or the timeout aborts the transaction.
            with suppress(KafkaException):
                self._producer.abort_transaction(_ABORT_S)

    def _send(self, record: SinkRecord) -> None:
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
                self._producer.poll(_POLL_S)
                self._raise_failures(None)
            except KafkaException as error:
                raise WriteError(self._describe_refusal(error.args[0], record)) from None

    def _check_partition(self, record: SinkRecord) -> None:
        """Check that the topic and the partition exist, once for each topic."""
        partitions = self._partitions.get(record.topic)
        if partitions is None:
            partitions = self._partitions[record.topic] = self._fetch_partition_count(record.topic)
        if record.partition is not None and record.partition >= partitions:
            # The topic may have got more partitions in the meantime.
            partitions = self._partitions[record.topic] = self._fetch_partition_count(record.topic)
            if record.partition >= partitions:
                raise WriteError(
                    f"a row names partition {record.partition} of {record.topic!r}, which has "
                    f"{partitions} partitions; drop the column partition to partition by key"
                )

    def _fetch_partition_count(self, topic: str) -> int:
        """Return the partition count of a topic. The broker may create a missing topic."""
        began = time.monotonic()
        patience_s = self._options.max_block_ms / 1000
        creation_s = min(patience_s, _CREATION_MS / 1000)
        missing = WriteError(f"there is no topic {topic!r} at {self._options.servers}")
        is_missing = False
        while True:
            waited_s = time.monotonic() - began
            try:
                found = self._producer.list_topics(topic, timeout=max(patience_s - waited_s, 0.01))
            except KafkaException as error:
                self._producer.poll(0)
                if is_missing:
                    raise missing from None
                raise WriteError(
                    f"no broker of {self._options.servers} answered within "
                    f"{self._options.max_block_ms} ms (kafka.max.block.ms): "
                    f"{self._last_error or error.args[0].str()}"
                ) from None
            described = found.topics[topic]
            if described.error is None:
                return len(described.partitions)
            if described.error.code() not in _RETRIABLE_ERRORS:
                raise WriteError(f"cannot write to {topic!r}: {described.error.str()}")
            if time.monotonic() - began >= creation_s:
                raise missing
            is_missing = True
            time.sleep(_POLL_S)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure_count += 1
            if not self._failures:
                where = f"{message.topic()}"
                self._failures.append(f"{where}: {_describe_error(error, self._options)}")

    def _on_error(self, error: KafkaError) -> None:
        self._last_error = error.str()

    def _raise_failures(self, sent: int | None) -> None:
        if self._failures:
            of = "" if sent is None else f" of {sent:,}"
            count = f"{self._failure_count:,}{of} records were not acknowledged"
            raise WriteError(f"{count}; the first was for {self._failures[0]}")

    def _describe_refusal(self, error: KafkaError, record: SinkRecord) -> str:
        size = len(record.key or b"") + len(record.value or b"")
        reason = _describe_error(error, self._options)
        return f"a record of {size:,} bytes for {record.topic}: {reason}"


def _transaction_settings(options: WriteOptions, transactional_id: str | None) -> dict[str, str]:
    if transactional_id is None:
        return {}
    return {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": str(options.transaction_timeout_ms),
        # librdkafka 2.16 hangs in a transaction after it has lost all brokers
        "metadata.recovery.strategy": "none",
    }


def _describe_error(error: KafkaError, options: WriteOptions) -> str:
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
_PRODUCERS: Final[dict[tuple[int, WriteOptions], TaskProducer]] = {}


def write_all(records: Iterable[SinkRecord], options: WriteOptions) -> int:
    """Send all records with this process's producer and return their number.

    Raises:
        WriteError: if a record was not acknowledged.
    """
    key = os.getpid(), options
    sending = _PRODUCERS.get(key)
    if sending is None:
        for pid, other in list(_PRODUCERS):
            if pid != key[0] or other != options:
                del _PRODUCERS[pid, other]
        sending = _PRODUCERS[key] = TaskProducer(options)
    try:
        return sending.send_all(records)
    except BaseException:
        del _PRODUCERS[key]
        sending.discard()
        raise
