"""Creating and filling topics with librdkafka."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from examples.flights.csv_records import PARTITIONS, FlightRecord

_STEP: Final = 500
_FLUSH_TIMEOUT_S: Final = 60


class LoadError(RuntimeError):
    """Raised if the broker did not acknowledge all records."""


class PacedRows:
    """Rows at a limited rate, as far as they are released; without limits after `hurry`."""

    def __init__(self, rows: Iterable[FlightRecord], rate: int, released: int) -> None:
        self._rows = rows
        self._rate = rate
        self._released = released
        self._changed = threading.Condition()
        self._hurries = self._is_stopped = False

    def release(self, count: int) -> None:
        """Release more rows."""
        with self._changed:
            self._released += count
            self._changed.notify()

    def hurry(self) -> None:
        """Yield all remaining rows without a pause."""
        with self._changed:
            self._hurries = True
            self._changed.notify()

    def stop(self) -> None:
        """End the iteration."""
        with self._changed:
            self._is_stopped = self._hurries = True
            self._changed.notify()

    def __iter__(self) -> Iterator[FlightRecord]:
        for number, row in enumerate(self._rows):
            if number % _STEP == 0:
                self._wait_for(number)
            if self._is_stopped:
                return
            yield row

    def _wait_for(self, number: int) -> None:
        """Wait until a row may be yielded."""
        with self._changed:
            self._changed.wait_for(lambda: self._hurries, _STEP / self._rate)
            self._changed.wait_for(lambda: self._hurries or number < self._released)


def create_topics(servers: str, names: Iterable[str]) -> None:
    """Create topics without a time limit for records, because their timestamps are of 2013."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    wanted = [NewTopic(name, PARTITIONS, 1, config={"retention.ms": "-1"}) for name in names]
    for made in admin.create_topics(wanted).values():
        made.result()


def load(
    servers: str, topic: str, rows: Iterable[FlightRecord], progress: Callable[[int], None]
) -> int:
    """Produce all rows. Return the number of acknowledged records.

    Args:
        servers: Bootstrap servers.
        topic: Topic.
        rows: Records to produce.
        progress: Called with the number of queued rows, every few hundred rows.

    Raises:
        LoadError: Not all records were acknowledged.
    """
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",  # As in Java and Spark.
            "compression.type": "lz4",
            "linger.ms": 20,
            "queue.buffering.max.messages": 200_000,
            "log_level": 2,  # Errors are raised.
        }
    )
    acknowledged = 0
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            failures.append(error)

    handed = 0
    for row in rows:
        while True:
            try:
                producer.produce(
                    topic, row.value, row.key, timestamp=row.timestamp_ms, on_delivery=delivered
                )
                break
            except BufferError:  # The queue is full: wait for the broker.
                producer.poll(0.1)
        handed += 1
        if handed % _STEP == 0:
            producer.poll(0)
            progress(handed)
    left = producer.flush(_FLUSH_TIMEOUT_S)
    progress(handed)
    if failures or left or acknowledged < handed:
        why = failures[0] if failures else f"{left} are unacknowledged"
        raise LoadError(f"{topic}: {acknowledged:,} of {handed:,} acknowledged; {why}")
    return acknowledged
