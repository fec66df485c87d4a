"""confluent-kafka (librdkafka) as a peer."""

from __future__ import annotations

import argparse

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from peer import (
    Uncommitted,
    emit,
    emit_committed,
    emit_partitions,
    enough,
    keyed,
    main,
)


def consume(options: argparse.Namespace) -> None:
    """Join the group and commit the printed records."""
    config = {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        "client.id": options.client_id,
        "group.protocol": options.group_protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if options.group_protocol == "consumer":  # the broker decides the rest
        config["group.remote.assignor"] = options.assignor
    else:
        config["session.timeout.ms"] = options.session_timeout_ms
        config["heartbeat.interval.ms"] = options.heartbeat_interval_ms
        config["partition.assignment.strategy"] = options.assignor
    if options.instance_id:
        config["group.instance.id"] = options.instance_id
    consumer = Consumer(config)
    uncommitted = Uncommitted()

    def commit() -> None:
        offsets = uncommitted.take()
        if not offsets:
            return
        wanted = [TopicPartition(t, p, offset) for (t, p), offset in offsets.items()]
        try:
            consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            retried = (
                KafkaError.ILLEGAL_GENERATION,  # the next generation began before the commit
                KafkaError.REBALANCE_IN_PROGRESS,
                KafkaError.STALE_MEMBER_EPOCH,
            )
            if error.args[0].code() in retried:
                # Offsets of partitions that we keep, or have not given up yet, are committed later.
                uncommitted.put_back(offsets)
            else:
                emit("error", message=f"commit: {error}")
        else:
            emit_committed(offsets)

    def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
        commit()
        uncommitted.drop((p.topic, p.partition) for p in partitions)
        emit_partitions("revoked", [(p.topic, p.partition) for p in partitions])

    def lost(_: Consumer, partitions: list[TopicPartition]) -> None:
        uncommitted.drop((p.topic, p.partition) for p in partitions)
        emit_partitions("lost", [(p.topic, p.partition) for p in partitions])

    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        emit_partitions("assigned", [(p.topic, p.partition) for p in partitions])

    consumer.subscribe(
        options.topic.split(","), on_assign=assigned, on_revoke=revoked, on_lost=lost
    )
    emit("ready", version=f"{confluent_kafka.__version__}, {confluent_kafka.libversion()[0]}")
    seen = 0
    while not enough(options, seen):
        message = consumer.poll(0.2)
        if message is None:
            commit()
        elif message.error():
            emit("error", message=str(message.error()))
        else:
            seen += 1
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            key = message.key().decode() if message.key() is not None else None
            emit("record", topic=topic, partition=partition, offset=offset, key=key)
            uncommitted.note(topic, partition, offset)
            if uncommitted.count >= options.commit_every:
                commit()
    commit()
    consumer.close()


def produce(options: argparse.Namespace) -> None:
    """Produce keyed records and print their offsets."""
    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap,
            "client.id": options.client_id,
            "acks": options.acks,
            "partitioner": "murmur2_random",
            "linger.ms": 5,
        }
    )
    emit("ready", version=confluent_kafka.__version__)

    def delivered(error: object, message: confluent_kafka.Message) -> None:
        if error is not None:
            emit("error", message=str(error))
            return
        where = {"partition": message.partition(), "offset": message.offset()}
        emit("produced", topic=message.topic(), key=message.key().decode(), **where)

    for _, key, value in keyed(options):
        producer.produce(options.topic, value, key, on_delivery=delivered)
        producer.poll(0)
    if producer.flush(60) > 0:
        raise TimeoutError("not everything was acknowledged within 60 s")


if __name__ == "__main__":
    main(__doc__, consume, produce)
