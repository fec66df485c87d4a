"""Throughput of consuming records of 100 bytes, compared with other Python clients.

Our broker has one core. Each consumer runs alone in a separate process on the other core, over the
same topic, without a group. The figure is the CPU time of all threads of that process, from the
creation of the consumer to its last record. Loops over records access the value and the offset of
each record. confluent-kafka does not verify checksums by default; all other clients do.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench import brokers
from bench.figures import Figure, figures_of_rounds
from bench.machine import LOAD_CORE
from bench.worker_process import WorkerProcess

TITLE = "Consuming records of 100 bytes"

CODECS = ("none", "lz4", "zstd")
PARTITIONS = 4
VALUE = b"0123456789" * 8 + b"%020d"
TIMEOUT_S = 120.0
_ROUNDS = 5


def fill(servers: str, topic: str, count: int, codec: str) -> None:
    """Produce the records in batches of 64 KB, spread evenly."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(TIMEOUT_S)
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": codec,
            "linger.ms": 50,
            "batch.size": 64 * 1024,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for n in range(count):
        while True:
            try:
                producer.produce(topic, VALUE % n, partition=n // 600 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(TIMEOUT_S) == 0


def by_arrow(servers: str, topic: str, count: int) -> None:
    """Read Arrow record batches with our consumer."""
    from partage.sync import Consumer

    with Consumer(servers, auto_offset_reset="earliest", max_poll_records=1_000_000) as consumer:
        consumer.assign([(topic, n) for n in range(PARTITIONS)])
        while count > 0:
            for batch in consumer.poll(10_000).batches:
                count -= batch.to_arrow().num_rows


def by_records(servers: str, topic: str, count: int) -> None:
    """Read record objects with our consumer, poll by poll."""
    from partage.sync import Consumer

    with Consumer(servers, auto_offset_reset="earliest", max_poll_records=1_000_000) as consumer:
        consumer.assign([(topic, n) for n in range(PARTITIONS)])
        size = 0
        while count > 0:
            for record in consumer.poll(10_000):
                size += len(record.value or b"") + (record.offset >= 0)
                count -= 1


def by_loop(servers: str, topic: str, count: int) -> None:
    """Iterate over our consumer."""
    from partage.sync import Consumer

    with Consumer(servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, n) for n in range(PARTITIONS)])
        size = 0
        for record in consumer:
            size += len(record.value or b"") + (record.offset >= 0)
            count -= 1
            if not count:
                break


def by_async_loop(servers: str, topic: str, count: int) -> None:
    """Iterate over our consumer on asyncio."""
    import partage

    async def main() -> None:
        async with partage.Consumer(servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, n) for n in range(PARTITIONS)])
            left, size = count, 0
            async for record in consumer:
                size += len(record.value or b"") + (record.offset >= 0)
                left -= 1
                if not left:
                    break

    asyncio.run(main())


def by_confluent(servers: str, topic: str, count: int) -> None:
    """Read with ``consume``, confluent-kafka's fastest method for records."""
    consumer = ConfluentConsumer(
        {"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
    size = 0
    while count > 0:
        for message in consumer.consume(10_000, 0.1):
            size += len(message.value()) + (message.offset() >= 0)
            count -= 1
    consumer.close()


def by_aiokafka(servers: str, topic: str, count: int) -> None:
    """Read with ``getmany``, aiokafka's fastest method for records."""
    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as Partition

    async def main() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([Partition(topic, n) for n in range(PARTITIONS)])
            left, size = count, 0
            while left > 0:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    for record in records:
                        size += len(record.value) + (record.offset >= 0)
                    left -= len(records)
        finally:
            await consumer.stop()

    asyncio.run(main())


OURS = {
    "into Arrow, poll": by_arrow,
    "into record objects, poll": by_records,
    "into record objects, loop": by_loop,
    "into record objects, async loop": by_async_loop,
}
PEERS = {"confluent-kafka": by_confluent, "aiokafka": by_aiokafka}
RUNS = {**PEERS, **OURS}


def timed(run: Callable[[str, str, int], None], servers: str, topic: str, count: int) -> float:
    """Return the CPU seconds of a run, all threads together."""
    for name in ("aiokafka", "partage.client.arrow", "partage.sync", "uvloop"):
        importlib.import_module(name)  # imported before the measurement starts
    before = time.process_time()
    run(servers, topic, count)
    return time.process_time() - before


def race(servers: str, topic: str, count: int) -> dict[str, list[float]]:
    """Return millions of records per CPU second in five rounds after a warm-up, by client.

    The clients take turns, so that all run under the same conditions.
    """
    took: dict[str, list[float]] = {name: [] for name in RUNS}
    with ExitStack() as stack:
        workers = {name: stack.enter_context(WorkerProcess(LOAD_CORE)) for name in RUNS}
        for _ in range(1 + _ROUNDS):
            for name, run in RUNS.items():
                work = workers[name].submit(timed, run, servers, topic, count)
                took[name].append(work.result())
    return {name: [count / each / 1e6 for each in times[1:]] for name, times in took.items()}


def measure(*, is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    """Compare our consumer with the peers for each codec."""
    count = 50_000 if is_quick else 2_000_000
    with brokers.ours(sync="os") as broker:
        for codec in CODECS:
            fill(broker.bootstrap, codec, count, codec)
            speeds = race(broker.bootstrap, codec, count)
            for name in OURS:
                yield from figures_of_rounds(
                    f"{codec}: {name}",
                    "million a CPU s",
                    {each: speeds[each] for each in (name, *PEERS)},
                    ratios_wanted=_wanted(codec, name),
                )


def _wanted(codec: str, name: str) -> dict[str, float]:
    """Return the target of the ratio to each peer."""
    if codec != "none":
        return {}
    if "Arrow" in name:
        return {"confluent-kafka": 10.0, "aiokafka": 30.0}
    return {"aiokafka": 1.0}
