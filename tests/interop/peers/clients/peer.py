"""Common code of all Python peers: command line, events, SIGTERM.

A peer is a separate script, so that it can be killed. Its command line is

    PEER consume --bootstrap A --group G --topic T[,T] --client-id C [--assignor range] ...
    PEER produce --bootstrap A --topic T --client-id C --count N [--start S] [--acks all]

It prints one JSON object a line, each with ``event`` and ``at`` (seconds since the epoch):

    ready      {version}                          the client is created
    assigned   {partitions: [[topic, p], ..]}     newly owned partitions
    revoked    {partitions: ..}                   partitions given up, after their commit
    lost       {partitions: ..}                   partitions taken away
    record     {topic, partition, offset, key}
    committed  {offsets: [[topic, p, offset], ..]}  acknowledged by the broker
    produced   {topic, partition, offset, key}    acknowledged by the broker
    error      {message}
    closed     {}                                 the last line of an orderly end
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable

Partition = tuple[str, int]


def emit(event: str, **fields: object) -> None:
    """Print one event and flush."""
    sys.stdout.write(json.dumps({"event": event, "at": round(time.time(), 3), **fields}) + "\n")
    sys.stdout.flush()


def emit_partitions(event: str, partitions: Iterable[Partition]) -> None:
    """Print an event about partitions."""
    emit(event, partitions=sorted([topic, number] for topic, number in partitions))


class Uncommitted:
    """Offsets of printed records that are not committed yet."""

    def __init__(self) -> None:
        self._next: dict[Partition, int] = {}
        self.count = 0

    def note(self, topic: str, partition: int, offset: int) -> None:
        self._next[topic, partition] = offset + 1
        self.count += 1

    def take(self) -> dict[Partition, int]:
        """Return the offsets to commit, and clear them."""
        taken, self._next, self.count = self._next, {}, 0
        return taken

    def put_back(self, offsets: dict[Partition, int]) -> None:
        """Restore offsets whose commit failed; no offset was noted in the meantime."""
        self._next = dict(offsets)

    def drop(self, partitions: Iterable[Partition]) -> None:
        """Remove partitions that this member must no longer commit."""
        for partition in partitions:
            self._next.pop(partition, None)


def emit_committed(offsets: dict[Partition, int]) -> None:
    """Print the offsets that the broker has acknowledged."""
    emit("committed", offsets=sorted([t, p, offset] for (t, p), offset in offsets.items()))


stopping = threading.Event()


def parse(description: str | None) -> argparse.Namespace:
    """Parse the options of a peer, and make SIGTERM and SIGINT set `stopping`."""
    parser = argparse.ArgumentParser(description=description)
    commands = parser.add_subparsers(dest="command", required=True)
    consume = commands.add_parser("consume")
    produce = commands.add_parser("produce")
    for command in (consume, produce):
        command.add_argument("--bootstrap", required=True)
        command.add_argument("--topic", required=True, help="one, or several with commas")
        command.add_argument("--client-id", required=True)
    consume.add_argument("--group", required=True)
    consume.add_argument("--assignor", default="range")
    consume.add_argument("--group-protocol", default="classic", help="classic or consumer")
    consume.add_argument("--instance-id")
    consume.add_argument("--drains", type=int, default=0, help="1: ours hands over at its end")
    consume.add_argument("--commit-every", type=int, default=20, help="records")
    consume.add_argument("--max", type=int, default=0, help="records, then close; 0 for ever")
    consume.add_argument("--session-timeout-ms", type=int, default=6000)
    consume.add_argument("--heartbeat-interval-ms", type=int, default=500)
    produce.add_argument("--count", type=int, required=True)
    produce.add_argument("--start", type=int, default=0, help="the number of the first key")
    produce.add_argument("--acks", default="all")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    return parser.parse_args()


def keyed(options: argparse.Namespace) -> Iterable[tuple[str, bytes, bytes]]:
    """Yield the records to produce: key as text, key, value."""
    for number in range(options.start, options.start + options.count):
        yield f"k{number}", b"k%d" % number, b"v%d" % number


def enough(options: argparse.Namespace, seen: int) -> bool:
    """Return True if the peer should stop: on request, or after ``--max`` records."""
    return stopping.is_set() or 0 < options.max <= seen


def main(
    description: str | None,
    consume: Callable[[argparse.Namespace], None],
    produce: Callable[[argparse.Namespace], None],
) -> None:
    """Run a peer. An error is printed as an event and gives exit status 1."""
    options = parse(description)
    try:
        (consume if options.command == "consume" else produce)(options)
    except Exception as error:
        emit("error", message=f"{type(error).__name__}: {error}")
        raise
    emit("closed")
