"""Read a topic, transform each record, and write the results, each exactly once.

Results and read positions are committed in one Kafka transaction. Start a broker with two topics,
then run this example:

    pip install 'partage[cli]'
    partage broker --data-dir data  # in a separate terminal
    partage topics create --topic orders --partitions 4
    partage topics create --topic invoices --partitions 4
    echo ada:coffee | partage produce --topic orders --key-separator :
    python examples/exactly_once.py 127.0.0.1:9092 orders invoices billing worker-1

Read the results in a separate terminal:

    partage consume --topic invoices --from-beginning --isolation-level read_committed

WORKER is a name that no other running process has. It is the transactional id and the instance id.
So a restarted process continues at once, and a process that was only suspended is rejected. Kill
the worker or the broker at any time, and start it again: each record has one result. A bug in
`transform` can still produce a wrong one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)


def transform(value: bytes) -> bytes:
    """Do the work for one record."""
    return value.upper()


def main(servers: str, source: str, target: str, group: str, worker: str) -> None:
    """Transform records until Ctrl-C, or until a newer process with the same name starts."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": worker,
            # librdkafka 2.16 hangs in send_offsets_to_transaction after it has lost all brokers
            "metadata.recovery.strategy": "none",
        }
    )
    repeat(producer.init_transactions)  # it ends the transaction of an earlier process
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.instance.id": worker,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([source])
    try:
        while True:
            messages = consumer.consume(500, timeout=0.5)
            for each in messages:
                error = each.error()
                if error is not None and not error.retriable():
                    raise KafkaException(error)  # for example a newer process with the same name
            owned = {each.partition for each in consumer.assignment()}
            records = [
                each for each in messages if each.error() is None and each.partition() in owned
            ]
            if records:
                transform_records(consumer, producer, source, target, records)
    finally:
        consumer.close()


def transform_records(
    consumer: Consumer, producer: Producer, source: str, target: str, records: list[Message]
) -> None:
    """Write the results and the positions of some records in one transaction."""
    producer.begin_transaction()
    try:
        for record in records:
            producer.produce(target, transform(record.value() or b""), key=record.key())
        last = {each.partition() or 0: each for each in records}
        offsets = [
            TopicPartition(source, partition, (record.offset() or 0) + 1)
            for partition, record in last.items()
        ]
        metadata = consumer.consumer_group_metadata()
        repeat(producer.send_offsets_to_transaction, offsets, metadata)
        repeat(producer.commit_transaction)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise  # for example because a newer process has the same name
        repeat(producer.abort_transaction)
        rewind(consumer)


def rewind(consumer: Consumer) -> None:
    """Continue at the committed positions, after a transaction was aborted."""
    for each in repeat(consumer.committed, consumer.assignment(), 10):
        if each.error:
            raise KafkaException(each.error)
        position = each.offset if each.offset >= 0 else OFFSET_BEGINNING
        consumer.seek(TopicPartition(each.topic, each.partition, position))


def repeat(call: Callable[..., Any], *arguments: Any) -> Any:
    """Repeat a call while its error is temporary, such as a broker that restarts."""
    while True:
        try:
            return call(*arguments)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit("usage: python examples/exactly_once.py SERVERS SOURCE TARGET GROUP WORKER")
    with suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
