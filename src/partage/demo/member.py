"""One consumer of the group, a process of its own.

    python -m partage.demo.member SERVERS GROUP TOPIC SESSION_TIMEOUT_MS NAME

It tells what happens in lines of JSON on its standard output, and ends when its standard input
does, which is also when whoever started it is gone. What it has read it tells before it commits:
so whatever was committed has been told, however it ends.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Collection, Iterable

from partage.client import TopicPartition
from partage.client.consumer import CommitFailed, RebalanceListener, Record
from partage.sync import Consumer

_BATCH = 2_000


def tell(event: str, **details: object) -> None:
    """One line for whoever started this."""
    print(json.dumps({"event": event, **details}), flush=True)


class Telling(RebalanceListener):
    """Tells what comes and goes."""

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """These are new."""
        tell("assigned", partitions=[p.partition for p in partitions])

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """These go, or are gone."""
        tell("revoked", partitions=[p.partition for p in partitions])


def runs(records: Iterable[Record]) -> list[list[int]]:
    """The records as runs of offsets without a gap: partition, first, last."""
    found: list[list[int]] = []
    for record in records:
        if found and found[-1][0] == record.partition and found[-1][2] == record.offset - 1:
            found[-1][2] = record.offset
        else:
            found.append([record.partition, record.offset, record.offset])
    return found


def main() -> None:
    """Read until the standard input ends."""
    servers, group, topic, session_timeout_ms, name = sys.argv[1:]
    is_over = threading.Event()

    def await_end() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=await_end, daemon=True).start()
    with Consumer(
        servers,
        group_id=group,
        client_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=int(session_timeout_ms),
        heartbeat_interval_ms=int(session_timeout_ms) // 6,
        max_poll_records=_BATCH,
        fetch_max_wait_ms=100,
    ) as consumer:
        consumer.subscribe([topic], Telling())
        while not is_over.is_set():
            records = consumer.poll(timeout_ms=100)
            if not records:
                continue
            tell("read", runs=runs(records))
            try:
                consumer.commit()
            except CommitFailed as error:  # a rebalance: they come again, here or elsewhere
                tell("refused", why=str(error))


if __name__ == "__main__":
    main()
