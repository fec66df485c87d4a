"""Programs of docs/found.md with aiokafka, for a simulated world and for real brokers."""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

#: More than the topic ``accounts`` accepts in a batch.
MESSAGE_BYTES_MAX = 1_000


async def transfer(servers: str, topic: str) -> None:
    """Write two records in a transaction; the broker rejects the second one."""
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"{topic}-bank")
    async with producer, producer.transaction():
        await producer.send(topic, b"-100", partition=0)
        await producer.send(topic, b"+100" + bytes(2 * MESSAGE_BYTES_MAX), partition=1)


async def copy(servers: str, source: str, target: str, transactional_id: str) -> None:
    """Copy records as a member of a group; records and offsets are written in transactions."""
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=servers,
        group_id=f"{source}-copiers",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id)
    async with consumer, producer:
        while True:
            fetched = await consumer.getmany(timeout_ms=1_000)
            if not fetched:
                continue
            async with producer.transaction():
                positions: dict[TopicPartition, int] = {}
                for partition, records in fetched.items():
                    for record in records:
                        await producer.send_and_wait(target, record.value)
                        await asyncio.sleep(0.2)
                    positions[partition] = records[-1].offset + 1
                await producer.send_offsets_to_transaction(positions, f"{source}-copiers")


async def read_committed(servers: str, topic: str) -> list[bytes]:
    """Return the values of all committed records of a topic."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    async with consumer:
        partitions = sorted(consumer.assignment())
        ends = await consumer.end_offsets(partitions)
        values: list[bytes] = []
        while any([await consumer.position(each) < ends[each] for each in partitions]):
            for records in (await consumer.getmany(timeout_ms=500)).values():
                values += [record.value for record in records]
        return values


if __name__ == "__main__":
    asyncio.run(copy(*sys.argv[1:]))
