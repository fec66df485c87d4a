"""kafka-python 3 as a peer."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

import kafka
from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata
from peer import Uncommitted, emit, emit_committed, emit_partitions, enough, keyed, main

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class Listener(ConsumerRebalanceListener):
    """Prints events. It runs on the client's event loop, where a blocking commit is not allowed."""

    def __init__(self, uncommitted: Uncommitted) -> None:
        self._uncommitted = uncommitted
        self._owned: set[TopicPartition] = set()

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._owned |= set(assigned)
        emit_partitions("assigned", [(p.topic, p.partition) for p in assigned])

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Print each revocation once.

        A consumer that closes in an eager rebalance gets it twice (kafka-python 3.0.12): before
        JoinGroup, and in ``close``. The consumer of Java gets it once.
        """
        given_up = self._owned.intersection(revoked)
        self._owned -= given_up
        emit_partitions("revoked", [(p.topic, p.partition) for p in given_up])

    def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        self._owned.difference_update(lost)
        self._uncommitted.drop((p.topic, p.partition) for p in lost)
        emit_partitions("lost", [(p.topic, p.partition) for p in lost])


def consume(options: argparse.Namespace) -> None:
    """Join the group; commit the records of a poll before the next poll."""
    consumer = KafkaConsumer(
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        client_id=options.client_id,
        group_instance_id=options.instance_id,
        session_timeout_ms=options.session_timeout_ms,
        heartbeat_interval_ms=options.heartbeat_interval_ms,
        partition_assignment_strategy=[ASSIGNORS[options.assignor]],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=options.commit_every,
    )
    uncommitted = Uncommitted()

    def commit() -> None:
        offsets = uncommitted.take()
        if not offsets:
            return
        wanted = {
            TopicPartition(t, p): OffsetAndMetadata(offset, "", -1)
            for (t, p), offset in offsets.items()
        }
        try:
            consumer.commit(wanted, timeout_ms=30_000)
        except KafkaError as error:
            emit("error", message=f"commit: {error}")
        else:
            emit_committed(offsets)

    consumer.subscribe(options.topic.split(","), listener=Listener(uncommitted))
    emit("ready", version=kafka.__version__)
    seen = 0
    while not enough(options, seen):
        left = options.max - seen if options.max else options.commit_every
        # Its first generation has no topic metadata, so a second one follows at once. A poll that
        # times out during the second join never completes it (kafka-python 3.0.12).
        patience_ms = 200 if consumer.assignment() else 10_000
        polled = consumer.poll(patience_ms, max_records=min(left, options.commit_every))
        for records in polled.values():
            for record in records:
                seen += 1
                where = {"partition": record.partition, "offset": record.offset}
                key = record.key.decode() if record.key is not None else None
                emit("record", topic=record.topic, key=key, **where)
                uncommitted.note(record.topic, record.partition, record.offset)
        commit()
    consumer.close()


def produce(options: argparse.Namespace) -> None:
    """Produce keyed records and print their offsets."""
    producer = KafkaProducer(
        bootstrap_servers=options.bootstrap,
        client_id=options.client_id,
        acks=options.acks if options.acks == "all" else int(options.acks),
        linger_ms=5,
    )
    emit("ready", version=kafka.__version__)
    sent = [(text, producer.send(options.topic, value, key)) for text, key, value in keyed(options)]
    producer.flush(60)
    for text, future in sent:
        done = future.get(30)
        where = {"partition": done.partition, "offset": done.offset}
        emit("produced", topic=done.topic, key=text, **where)
    producer.close(10)


if __name__ == "__main__":
    main(__doc__, consume, produce)
