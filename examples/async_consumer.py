"""Read a topic on asyncio: partitions are handled concurrently, each in its order.

Start a broker with a topic, produce a record, then run this example:

    pip install 'partage[cli]'
    partage broker --ephemeral  # in a separate terminal
    partage topics create --topic flights --partitions 4
    echo EWR:hello | partage produce --topic flights --key-separator :
    python examples/async_consumer.py 127.0.0.1:9092 flights tower

The listener prints which partitions this member gets and gives up. Ctrl-C leaves the group.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection
from contextlib import suppress

from partage import Batch, Consumer, RebalanceListener, TopicPartition


class Printer(RebalanceListener):
    """Prints changes of the assignment."""

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Load the state of new partitions here."""
        print("assigned:", *sorted(each.partition for each in partitions), flush=True)

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Save the state of partitions here, before another member gets them."""
        print("revoked:", *sorted(each.partition for each in partitions), flush=True)


async def handle(batch: Batch) -> None:
    """Do the work for the records of one partition."""
    for record in batch:
        await asyncio.sleep(0)  # For example, a request to another service.
        text = (record.value or b"").decode()
        print(f"{record.topic}-{record.partition} offset {record.offset}: {text}", flush=True)


async def main(servers: str, topic: str, group: str) -> None:
    """Handle each record at least once: commit after the work is done."""
    async with Consumer(
        servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.subscribe([topic], Printer())
        while True:
            records = await consumer.poll(timeout_ms=1000)
            async with asyncio.TaskGroup() as tasks:
                for batch in records.batches:
                    tasks.create_task(handle(batch))
            if records:
                await consumer.commit()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python examples/async_consumer.py SERVERS TOPIC GROUP")
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
