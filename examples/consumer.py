"""Read a topic as a member of a consumer group, and commit what was handled.

Start a broker with a topic, produce a record, then run this example:

    pip install 'partage[cli]'
    partage broker --ephemeral  # in a separate terminal
    partage topics create --topic flights --partitions 4
    echo EWR:hello | partage produce --topic flights --key-separator :
    python examples/consumer.py 127.0.0.1:9092 flights tower

Run it in two terminals, and the two members share the partitions. Ctrl-C leaves the group.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from partage.sync import Consumer, Record


def handle(record: Record) -> None:
    """Do the work for one record."""
    text = (record.value or b"").decode()
    print(f"{record.topic}-{record.partition} offset {record.offset}: {text}", flush=True)


def main(servers: str, topic: str, group: str) -> None:
    """Handle each record at least once: commit after the work is done."""
    with Consumer(
        servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.subscribe([topic])
        while True:
            records = consumer.poll(timeout_ms=1000)
            for record in records:
                handle(record)
            if records:
                consumer.commit()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python examples/consumer.py SERVERS TOPIC GROUP")
    with suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
