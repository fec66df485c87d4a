"""aiokafka as a peer."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Iterable

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError
from peer import (
    Partition,
    Uncommitted,
    emit,
    emit_committed,
    emit_partitions,
    enough,
    keyed,
    main,
    stopping,
)

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Member(ConsumerRebalanceListener):
    """A consumer and its uncommitted offsets."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.uncommitted = Uncommitted()
        self.owned: set[Partition] = set()
        # A revocation, which is another task, awaits the commit that is on its way.
        self.committing = asyncio.Lock()
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=options.bootstrap,
            group_id=options.group,
            client_id=options.client_id,
            group_instance_id=options.instance_id,
            session_timeout_ms=options.session_timeout_ms,
            heartbeat_interval_ms=options.heartbeat_interval_ms,
            partition_assignment_strategy=[ASSIGNORS[options.assignor]],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.owned = {(p.topic, p.partition) for p in assigned}
        emit_partitions("assigned", self.owned)

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Commit, and give up all partitions: the protocol is eager."""
        async with self.committing:
            while self.uncommitted.count:
                await self.commit()
            if self.owned:
                emit_partitions("revoked", self.owned)
            self.owned = set()

    async def commit(self) -> None:
        """Commit the printed records; the caller holds ``committing``."""
        offsets = self.uncommitted.take()
        if not offsets:
            return
        try:
            await self.consumer.commit(
                {TopicPartition(t, p): offset for (t, p), offset in offsets.items()}
            )
        except KafkaError as error:
            emit("error", message=f"commit: {error!r}")
        else:
            emit_committed(offsets)

    async def run(self) -> None:
        self.consumer.subscribe(self.options.topic.split(","), listener=self)
        await self.consumer.start()
        emit("ready", version=aiokafka.__version__)
        seen = 0
        try:
            while not enough(self.options, seen):
                left = self.options.max - seen if self.options.max else self.options.commit_every
                polled = await self.consumer.getmany(
                    timeout_ms=200, max_records=min(left, self.options.commit_every)
                )
                # No await from here to the commit, so no partition can be revoked in between.
                for records in polled.values():
                    for record in records:
                        seen += 1
                        where = {"partition": record.partition, "offset": record.offset}
                        key = record.key.decode() if record.key is not None else None
                        emit("record", topic=record.topic, key=key, **where)
                        self.uncommitted.note(record.topic, record.partition, record.offset)
                async with self.committing:
                    await self.commit()
            # aiokafka does not call its listener when it stops. If it stops in a rebalance, the
            # listener was called before.
            await self.on_partitions_revoked(())
        finally:
            await self.consumer.stop()


def consume(options: argparse.Namespace) -> None:
    """Join the group and commit the printed records."""

    async def run() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
        await Member(options).run()

    asyncio.run(run())


def produce(options: argparse.Namespace) -> None:
    """Produce keyed records and print their offsets."""

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=options.bootstrap,
            client_id=options.client_id,
            acks=options.acks if options.acks == "all" else int(options.acks),
            linger_ms=5,
        )
        await producer.start()
        emit("ready", version=aiokafka.__version__)
        try:
            sent = [
                (text, await producer.send(options.topic, value, key))
                for text, key, value in keyed(options)
            ]
            for text, future in sent:
                done = await asyncio.wait_for(future, 30)
                where = {"partition": done.partition, "offset": done.offset}
                emit("produced", topic=done.topic, key=text, **where)
        finally:
            await producer.stop()

    asyncio.run(run())


if __name__ == "__main__":
    main(__doc__, consume, produce)
