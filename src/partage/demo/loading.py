"""Topics made and filled, by a client that others wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from partage.demo.flights import PARTITIONS, FlightRecord

_STEP: Final = 2_000
_FLUSH_TIMEOUT_S: Final = 60


class NotLoaded(RuntimeError):  # noqa: N818 - named after what it is
    """Records that the broker did not take."""


def create_topics(servers: str, names: Iterable[str]) -> None:
    """Topics that keep their records for good: their times are of 2013."""
    admin = AdminClient({"bootstrap.servers": servers})
    wanted = [NewTopic(name, PARTITIONS, 1, config={"retention.ms": "-1"}) for name in names]
    for made in admin.create_topics(wanted).values():
        made.result()


def load(
    servers: str, topic: str, rows: Iterable[FlightRecord], progress: Callable[[int], None]
) -> int:
    """Produce all rows, and say how many the broker has acknowledged.

    ``progress`` is called with the number of rows handed over so far, every few thousand.

    Raises:
        NotLoaded: not all of them were.
    """
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",  # as Java and Spark place keys
            "compression.type": "lz4",
            "linger.ms": 20,
            "queue.buffering.max.messages": 200_000,
            "log_level": 2,  # what goes wrong is raised
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
            except BufferError:  # the queue is full: wait for the broker
                producer.poll(0.1)
        handed += 1
        if handed % _STEP == 0:
            producer.poll(0)
            progress(handed)
    left = producer.flush(_FLUSH_TIMEOUT_S)
    progress(handed)
    if failures or left or acknowledged < handed:
        why = failures[0] if failures else f"{left} were still on their way"
        raise NotLoaded(f"{topic}: {acknowledged:,} of {handed:,} acknowledged; {why}")
    return acknowledged
