"""Reading records until there is a reason to stop."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from typing import BinaryIO, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from partage.console.cluster import Cluster, words
from partage.console.failure import Failure
from partage.console.offsets import Place
from partage.console.printing import Print
from partage.console.show import note
from partage.console.starting import Span
from partage.console.stopping import StopRequest

_WAIT_S: Final = 0.1
_BATCH: Final = 500
_PATIENCE_S: Final = 5.0
_PASSING: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
    }
)


class Limits(NamedTuple):
    """When reading ends by itself; None for never."""

    messages_max: int | None = None
    idle_ms: int | None = None
    at_end: bool = False


class ReaderGone(Exception):  # noqa: N818 - named after what it is
    """Nobody reads our output any more."""


class Consuming:
    """Takes records from a consumer and prints them.

    A group's offsets are stored for the next commit only after the record was written out, so
    that one which nobody saw is read again. Raises `Failure` for what no waiting mends.
    """

    def __init__(
        self, cluster: Cluster, consumer: Consumer, show: Print, out: BinaryIO, in_group: bool
    ) -> None:
        self.records = 0
        self.bytes = 0
        self._cluster = cluster
        self._consumer = consumer
        self._show = show
        self._out = out
        self._in_group = in_group
        self._assigned = not in_group
        self._at_end: set[Place] = set()
        self._ends: dict[Place, int] = {}
        self._joining_since = time.monotonic()
        self._told_of_waiting = False

    def assign(self, spans: Mapping[Place, Span]) -> None:
        """Read these partitions from their starts, without a group.

        The end of each is where it ended when it was asked: whoever writes on does not keep us.
        """
        self._ends = {place: span.end for place, span in spans.items()}
        self._at_end = {place for place, span in spans.items() if span.start >= span.end}
        self._consumer.assign([TopicPartition(*place, span.start) for place, span in spans.items()])

    def subscribe(self, topics: list[str]) -> None:
        """Join the group for these topics."""
        self._consumer.subscribe(
            topics, on_assign=self._on_assign, on_revoke=self._on_gone, on_lost=self._on_gone
        )

    def _tell_of_waiting(self) -> None:
        """A group that rebalances for long may wait for a member; say that it is not us."""
        if self._assigned or self._told_of_waiting:
            return
        if time.monotonic() - self._joining_since > _PATIENCE_S:
            self._told_of_waiting = True
            note("waiting for the group to assign partitions; Ctrl-C ends it")

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._assigned = True
        if self._cluster.verbose:
            note(f"assigned {_listed(partitions)}")

    def _on_gone(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._assigned = False
        self._joining_since = time.monotonic()
        self._at_end -= {(each.topic, each.partition) for each in partitions}
        if self._cluster.verbose:
            note(f"gave up {_listed(partitions)}")

    def run(self, limits: Limits, stop: StopRequest) -> str | None:
        """Read until a limit or a request to stop; the reason, where it is worth telling."""
        last_record = time.monotonic()
        while not stop:
            left = None if limits.messages_max is None else limits.messages_max - self.records
            if left is not None and left <= 0:
                return None
            try:
                taken = self._take(self._batch(left))
            except ReaderGone:
                return "nobody reads the output any more"
            now = time.monotonic()
            if taken:
                last_record = now
            elif limits.idle_ms is not None and now - last_record >= limits.idle_ms / 1000:
                return f"no record came for {limits.idle_ms} ms"
            if limits.at_end and self._all_at_end():
                return None
            self._tell_of_waiting()
            self._stay_connected(stop)
        return "stopped"

    def _batch(self, left: int | None) -> list[Message]:
        """What has come, the first of it waited for."""
        first = self._consumer.poll(_WAIT_S)
        if first is None:
            return []
        more = _BATCH if left is None else min(_BATCH, left) - 1
        return [first, *(self._consumer.consume(more, 0) if more else [])]

    def _take(self, messages: list[Message]) -> int:
        shown: list[bytes] = []
        taken: dict[Place, Message] = {}
        try:
            for message in messages:
                place = (message.topic() or "", message.partition() or 0)
                error = message.error()
                if error is None:
                    self._passed(place, message.offset() or 0)
                    shown.append(self._show(message))
                    taken[place] = message
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._at_end.add(place)
                elif not error.retriable() and error.code() not in _PASSING:
                    raise Failure(words(error))
        finally:
            self._write(b"".join(shown))
            self._store(taken)
        self.records += len(shown)
        self.bytes += sum(
            len(each.value() or b"") + len(each.key() or b"")
            for each in messages
            if each.error() is None
        )
        return len(shown)

    def _passed(self, place: Place, offset: int) -> None:
        end = self._ends.get(place)
        if end is None:
            self._at_end.discard(place)
        elif offset + 1 >= end:
            self._at_end.add(place)

    def _write(self, text: bytes) -> None:
        if not text:
            return
        try:
            self._out.write(text)
            self._out.flush()
        except BrokenPipeError:
            # What is left in the buffer goes nowhere, and Python must not complain of it at exit.
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise ReaderGone from None

    def _store(self, taken: dict[Place, Message]) -> None:
        if not self._in_group or not taken:
            return
        # A partition lost while its records were on their way is the next owner's to commit.
        with contextlib.suppress(KafkaException):
            self._consumer.store_offsets(
                offsets=[
                    TopicPartition(
                        topic,
                        partition,
                        (message.offset() or 0) + 1,
                        leader_epoch=message.leader_epoch(),
                    )
                    for (topic, partition), message in taken.items()
                ]
            )

    def _all_at_end(self) -> bool:
        if not self._assigned:
            return False
        owned = {(each.topic, each.partition) for each in self._consumer.assignment()}
        return owned <= self._at_end

    def _stay_connected(self, stop: StopRequest) -> None:
        """Wait for the cluster to come back, but not for ever."""
        troubles = self._cluster.troubles
        if not any(each.code() == KafkaError._ALL_BROKERS_DOWN for each in troubles):
            return
        deadline = time.monotonic() + self._cluster.timeout_s
        told = False
        while not stop:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._cluster.unreachable()
            try:
                self._consumer.list_topics(timeout=min(left, 0.5))
            except KafkaException:
                if not told:
                    note(f"lost {self._cluster.bootstrap_servers}; trying again")
                    told = True
            else:
                troubles.clear()
                return


def _listed(partitions: list[TopicPartition]) -> str:
    return ", ".join(f"{each.topic}-{each.partition}" for each in partitions) or "nothing"
