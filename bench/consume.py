"""How fast records of 100 bytes are consumed, beside other Python clients.

One broker of ours on a core of its own; each consumer in a process of its own on the other core,
by itself, over the same topic, without a group. What counts is CPU time of all threads of that
process, from making the consumer to its last record. Loops over records look at value and offset
of each. confluent-kafka leaves checksums unchecked unless it is told otherwise; the others check.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Callable, Iterator

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench import brokers
from bench.apart import Apart
from bench.figures import Figure
from bench.machine import LOAD_CORE

TITLE = "Consuming records of 100 bytes"

CODECS = ("none", "lz4", "zstd")
PARTITIONS = 4
VALUE = b"0123456789" * 8 + b"%020d"
TIMEOUT_S = 120.0


def fill(servers: str, topic: str, count: int, codec: str) -> None:
    """Produce the records, in batches of 64 KB, spread evenly."""
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
    """Our consumer into record batches."""
    from partage.sync import Consumer

    with Consumer(servers, auto_offset_reset="earliest", max_poll_records=1_000_000) as consumer:
        consumer.assign([(topic, n) for n in range(PARTITIONS)])
        while count > 0:
            for batch in consumer.poll(10_000).batches:
                count -= batch.to_arrow().num_rows


def by_records(servers: str, topic: str, count: int) -> None:
    """Our consumer into record objects, a poll at a time."""
    from partage.sync import Consumer

    with Consumer(servers, auto_offset_reset="earliest", max_poll_records=1_000_000) as consumer:
        consumer.assign([(topic, n) for n in range(PARTITIONS)])
        size = 0
        while count > 0:
            for record in consumer.poll(10_000):
                size += len(record.value or b"") + (record.offset >= 0)
                count -= 1


def by_loop(servers: str, topic: str, count: int) -> None:
    """Our consumer as an iterator of records."""
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
    """The same on asyncio."""
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
    """confluent-kafka's ``consume``, its quickest way to records."""
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
    """aiokafka's ``getmany``, its quickest way to records."""
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


def timed(run: Callable[[str, str, int], None], servers: str, topic: str, count: int) -> float:
    """CPU seconds that it takes, all threads together."""
    for name in ("aiokafka", "partage.client.arrow", "partage.sync", "uvloop"):
        importlib.import_module(name)  # which is not what is measured
    before = time.process_time()
    run(servers, topic, count)
    return time.process_time() - before


def best(run: Callable[[str, str, int], None], servers: str, topic: str, count: int) -> float:
    """Millions a CPU second, the best of three runs in a process of its own."""
    with Apart(LOAD_CORE) as apart:
        took = [apart.begin(timed, run, servers, topic, count).result() for _ in range(3)]
    return count / min(took) / 1e6


def ask(*, is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    """Ours beside the peers, codec by codec."""
    count = 50_000 if is_quick else 2_000_000
    with brokers.ours(sync="os") as broker:
        servers = broker.bootstrap
        for codec in CODECS:
            fill(servers, codec, count, codec)
            peers = {"confluent-kafka": best(by_confluent, servers, codec, count)}
            peers["aiokafka"] = best(by_aiokafka, servers, codec, count)
            ours = {
                "into Arrow, poll": best(by_arrow, servers, codec, count),
                "into record objects, poll": best(by_records, servers, codec, count),
                "into record objects, loop": best(by_loop, servers, codec, count),
                "into record objects, async loop": best(by_async_loop, servers, codec, count),
            }
            for name, speed in ours.items():
                for peer_name, peer in peers.items():
                    yield Figure(
                        what=f"{codec}: {name}",
                        unit="million a CPU s",
                        ours=speed,
                        peer_name=peer_name,
                        peer=peer,
                        ratio_wanted=_wanted(codec, name, peer_name),
                    )


def _wanted(codec: str, name: str, peer: str) -> float | None:
    if codec != "none":
        return None
    if "Arrow" in name:
        return {"confluent-kafka": 10.0, "aiokafka": 30.0}[peer]
    return 1.0 if peer == "aiokafka" else None
