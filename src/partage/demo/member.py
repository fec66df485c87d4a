"""One consumer of the group, a process of its own, on somebody else's client.

    python -m partage.demo.member SERVERS GROUP TOPIC SESSION_TIMEOUT_MS NAME

It tells what happens in lines of JSON on its standard output, and ends when its standard input
does, which is also when whoever started it is gone. What it has read it tells before it commits:
so whatever was committed has been told, however it ends.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

_BATCH = 2_000
#: Refusals that a rebalance brings; the records come again, to this member or another.
_REBALANCED = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._NO_OFFSET,
)


def tell(event: str, **details: object) -> None:
    """One line for whoever started this."""
    print(json.dumps({"event": event, **details}), flush=True)


def runs(messages: Iterable[Message]) -> list[list[int]]:
    """The records as runs of offsets without a gap: partition, first, last."""
    found: list[list[int]] = []
    for message in messages:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        if found and found[-1][0] == partition and found[-1][2] == offset - 1:
            found[-1][2] = offset
        else:
            found.append([partition, offset, offset])
    return found


def main() -> None:
    """Read until the standard input ends."""
    servers, group, topic, session_timeout_ms, name = sys.argv[1:]
    is_over = threading.Event()

    def await_end() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=await_end, daemon=True).start()
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": int(session_timeout_ms),
            "heartbeat.interval.ms": int(session_timeout_ms) // 6,
            "fetch.wait.max.ms": 100,
            "log_level": 2,  # what goes wrong is raised, or told
        }
    )

    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        tell("assigned", partitions=[p.partition for p in partitions])

    def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
        tell("revoked", partitions=[p.partition for p in partitions])

    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    while not is_over.is_set():
        messages = consumer.consume(_BATCH, timeout=0.1)
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
        if not messages:
            continue
        tell("read", runs=runs(messages))
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in _REBALANCED:
                raise
            tell("refused", why=error.args[0].str())
    consumer.close()


if __name__ == "__main__":
    main()
