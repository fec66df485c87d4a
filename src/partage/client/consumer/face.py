"""The methods of both consumers that need no waiting."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from partage.client.consumer.engine import Engine
from partage.client.consumer.errors import BadOption
from partage.client.consumer.listener import RebalanceListener
from partage.client.consumer.loop import Loan
from partage.client.consumer.options import parse_options
from partage.client.consumer.place import Place
from partage.client.consumer.positions import Taken
from partage.client.consumer.records import Batch, Records
from partage.client.consumer.state import TO_EARLIEST, TO_LATEST, ResetTo
from partage.client.group.errors import NoGroup
from partage.client.metadata import TopicPartition

#: A partition in the forms that users may pass.
Partition = TopicPartition | tuple[str, int]


class Face:
    """The base class of `partage.Consumer` and `partage.sync.Consumer`."""

    def __init__(self, bootstrap_servers: str, **options: Any) -> None:
        ours, client = parse_options(options)
        self._engine = Engine(bootstrap_servers, ours, client)
        self._loan: Loan | None = None
        self._seen = -1  # The engine version that the record loop checked last.
        self._place: Place | None = None if ours.group_id is None else Place(self._engine)

    # Subscription.

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str],
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics and share their partitions with the other members of the group.

        It replaces an earlier subscription. The consumer joins the group during the next poll.

        Args:
            topics: Topic names, or a pattern that must match the whole name of a topic.
            listener: Its callbacks run during `poll`, `close` and `unsubscribe`.

        Raises:
            MissingGroupIdError: The consumer has no ``group_id``.
            AlreadyAssignedError: The consumer has partitions from `assign`.
        """
        self._grouped("subscribe()").subscribe(topics, self._checked(listener))

    def subscription(self) -> set[str]:
        """Return the subscribed topics; for a pattern, the topics that match."""
        return set() if self._place is None else self._place.subscription()

    def drain(self) -> None:
        """Begin to hand over all partitions to other members and to leave the group, without a gap.

        Continue to poll. Records are delivered as before until the other members are ready to take
        the partitions. Then ``on_partitions_revoked`` of the listener is called and the consumer
        leaves. After that, record loops end and polls return nothing; then call `close`. Under the
        eager protocol the consumer leaves at the next poll. This method returns at once and may be
        called in a signal handler.

        Raises:
            MissingGroupIdError: The consumer has no ``group_id``.
        """
        self._grouped("drain()").drain()

    @property
    def is_drained(self) -> bool:
        """Whether everything is handed over, after `drain`."""
        return self._place is not None and self._place.is_drained

    def _grouped(self, what: str) -> Place:
        if self._place is None:
            raise NoGroup(what)
        return self._place

    def _checked(self, listener: RebalanceListener | None) -> RebalanceListener | None:
        return listener

    # Assignment.

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Read exactly these partitions.

        Partitions that are assigned already keep their positions. New ones start at the committed
        offset of the consumer's group. Without one, or without a ``group_id``,
        ``auto_offset_reset`` applies. A topic need not exist yet. The group's coordinator is not
        involved.

        Raises:
            AlreadySubscribedError: The consumer is subscribed.
        """
        if self._place is not None:
            self._place.begin_alone()
        wanted = named(partitions)
        self._engine.disown([p for p in self._engine.assignment() if p not in wanted])
        self._engine.own(wanted)

    def unassign(self) -> None:
        """Remove all assigned partitions; raise `AlreadySubscribedError` as `assign` does."""
        if self._place is not None:
            self._place.begin_alone()
        self._engine.disown(self._engine.assignment())

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        return set(self._engine.assignment())

    def pause(self, *partitions: Partition) -> None:
        """Stop delivering records of these partitions; those already fetched are kept."""
        self._engine.pause(named(partitions), paused=True)

    def resume(self, *partitions: Partition) -> None:
        """Resume these partitions."""
        self._engine.pause(named(partitions), paused=False)

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return set(self._engine.paused())

    def positions(self) -> dict[TopicPartition, int]:
        """Return the known positions: the offset after the last delivered record, by partition."""
        return self._engine.positions()

    # Positions.

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue at this offset; records fetched before are dropped."""
        if offset < 0:
            raise BadOption(
                "offset", offset, "0 or more; or call seek_to_beginning() or seek_to_end()"
            )
        self._engine.seek(TopicPartition(*partition), offset)

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Continue at the first offset, in all assigned partitions if none is named."""
        self._engine.reset(named(partitions) or None, TO_EARLIEST)

    def seek_to_end(self, *partitions: Partition) -> None:
        """Continue at the end offset, in all assigned partitions if none is named."""
        self._engine.reset(named(partitions) or None, TO_LATEST)

    def seek_to_time(self, timestamp_ms: int, *partitions: Partition) -> None:
        """Continue at the first record at or after a timestamp.

        Args:
            timestamp_ms: Milliseconds since the epoch. If all records are older, continue at the
                end.
            partitions: The partitions; all assigned partitions if none is named.
        """
        if timestamp_ms < 0:
            raise BadOption("timestamp_ms", timestamp_ms, "ms since the epoch, 0 or more")
        self._engine.reset(named(partitions) or None, ResetTo(timestamp_ms))


    def _limit(self, records_max: int | None) -> int:
        return self._engine.options.max_poll_records if records_max is None else records_max

    def _end_loan(self) -> None:
        """Close the cursor of a record loop; its undelivered records are delivered again."""
        loan, self._loan = self._loan, None
        if loan is not None:
            loan.end()

    def _go_back(self, positions: Mapping[TopicPartition, int]) -> None:
        for partition in self._engine.assignment():
            if partition in positions:
                self._engine.seek(partition, positions[partition])

    def _lend(self) -> Loan | None:
        """Return a cursor for a record loop, or None if no records are available."""
        taken = self._engine.lend(self._limit(None))
        if taken is not None:
            self._loan = Loan(self._engine, taken)
            self._engine.owner.returned()
        return self._loan


class Deadline:
    """A point in time at which waiting ends; ``timeout_ms`` None means never."""

    def __init__(self, timeout_ms: float | None) -> None:
        self._at = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000

    @property
    def left_s(self) -> float | None:
        """Seconds that remain, at least 0; None if there is no limit."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())

    @property
    def is_over(self) -> bool:
        """True if the deadline has passed."""
        return self.left_s == 0.0


def batches(taken: Iterable[Taken]) -> Records:
    """Return collected ranges as `Records`."""
    return Records([Batch(t.part.content, t.from_offset, t.to_offset) for t in taken])


def named(partitions: Iterable[Partition]) -> list[TopicPartition]:
    """Return the partitions as `TopicPartition`."""
    return [TopicPartition(*partition) for partition in partitions]


def behind(
    positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    """Return the partitions whose positions are before their end offsets."""
    return [p for p, end in ends.items() if p not in positions or positions[p] < end]
