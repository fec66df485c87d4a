"""Do the same as ``exactly_once.py`` on asyncio, with aiokafka.

Start a broker with two topics, then run this example for some partitions of the first:

    pip install 'partage[cli]' aiokafka
    partage broker --data-dir data  # in a separate terminal
    partage topics create --topic orders --partitions 4
    partage topics create --topic invoices --partitions 4
    echo ada:coffee | partage produce --topic orders --key-separator :
    python examples/exactly_once_aiokafka.py 127.0.0.1:9092 orders invoices billing 0 1 2 3

Read the results in a separate terminal:

    partage consume --topic invoices --from-beginning --isolation-level read_committed

The program does not join the group, because aiokafka commits offsets without its member id. So the
group would not reject a member that has lost a partition. Instead, each partition has a
transactional id. If two processes transform the same partition, the broker rejects the earlier one.

After an error the program continues with a new producer, at the committed position: a producer of
aiokafka is of no use after the broker has rejected a record. Kill the program or the broker at any
time, and start it again: each record has one result. A bug in `transform` can still produce a wrong
one.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced

RETRY_AFTER_S = 1


def transform(value: bytes) -> bytes:
    """Do the work for one record."""
    return value.upper()


async def main(servers: str, source: str, target: str, group: str, *partitions: str) -> None:
    """Transform records until Ctrl-C, or until another process transforms the same partitions."""
    async with asyncio.TaskGroup() as tasks:
        for partition in partitions:
            where = TopicPartition(source, int(partition))
            tasks.create_task(repeat(servers, where, target, group))


async def repeat(servers: str, partition: TopicPartition, target: str, group: str) -> None:
    """Continue after errors, except if another process transforms the partition."""
    while True:
        try:
            await transform_partition(servers, partition, target, group)
        except ProducerFenced:
            raise
        except KafkaError as error:
            print(f"{partition.topic}-{partition.partition}: {error!r}", file=sys.stderr)
            await asyncio.sleep(RETRY_AFTER_S)


async def transform_partition(
    servers: str, partition: TopicPartition, target: str, group: str
) -> None:
    """Write the results and the positions of a partition in transactions."""
    producer = AIOKafkaProducer(
        bootstrap_servers=servers,
        transactional_id=f"{group}-{partition.topic}-{partition.partition}",
    )
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    consumer.assign([partition])
    try:
        await producer.start()  # it ends the transaction of an earlier process
        await consumer.start()  # only now, because that transaction may have a position
        while True:
            fetched = await consumer.getmany(timeout_ms=500, max_records=500)
            for records in fetched.values():
                await transform_records(producer, records, target, group)
    finally:
        await consumer.stop()
        await producer.stop()


async def transform_records(
    producer: AIOKafkaProducer, records: list[ConsumerRecord], target: str, group: str
) -> None:
    """Write the results and the position of some records in one transaction."""
    async with producer.transaction():
        sent = [
            await producer.send(target, transform(record.value or b""), key=record.key)
            for record in records
        ]
        await asyncio.gather(*sent)  # aiokafka commits even if the broker has rejected a record
        last = records[-1]
        position = {TopicPartition(last.topic, last.partition): last.offset + 1}
        await producer.send_offsets_to_transaction(position, group)


if __name__ == "__main__":
    if len(sys.argv) < 6:
        sys.exit(
            "usage: python examples/exactly_once_aiokafka.py "
            "SERVERS SOURCE TARGET GROUP PARTITION..."
        )
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
