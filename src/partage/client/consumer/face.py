"""What both faces of a consumer have in common: all that needs no waiting."""

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

#: A partition as users may write it.
Partition = TopicPartition | tuple[str, int]


class Face:
    """See `partage.Consumer`."""

    def __init__(self, bootstrap_servers: str, **options: Any) -> None:
        ours, client = parse_options(options)
        self._engine = Engine(bootstrap_servers, ours, client)
        self._loan: Loan | None = None
        self._seen = -1  # the version of the engine at which a loop last looked around
        self._place: Place | None = None if ours.group_id is None else Place(self._engine)

    # Which group.

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str],
        listener: RebalanceListener | None = None,
    ) -> None:
        """Share these topics, or those that match, with the others of the group, from now on.

        Instead of what was subscribed to before. Joining begins with the next poll.

        Raises:
            NoGroup: the consumer has no ``group_id``.
            AlreadyAssigned: the user says what is read.
        """
        self._grouped("subscribe()").subscribe(topics, self._checked(listener))

    def subscription(self) -> set[str]:
        """The topics that are subscribed to, of a pattern those that match."""
        return set() if self._place is None else self._place.subscription()

    def drain(self) -> None:
        """Hand the partitions over to the other members, and leave the group, without a gap.

        Go on polling: everything is read as before until the others are ready to take it, then the
        listener's ``on_partitions_revoked`` is called, and the consumer leaves. From then on loops
        over records end, and polls return nothing, at once; `close` it then. Under the eager
        protocol it leaves at the next poll. Returns at once, also in the handler of a signal.

        Raises:
            NoGroup: the consumer has no ``group_id``.
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

    # Which partitions.

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Read exactly these partitions, from now on.

        Those that were assigned already go on where they are; the others begin where
        ``auto_offset_reset`` says, those of a consumer with a ``group_id`` where the group has
        come to. A topic need not exist yet. The group's members know nothing of it.

        Raises:
            AlreadySubscribed: the group says what is read.
        """
        if self._place is not None:
            self._place.begin_alone()
        wanted = named(partitions)
        self._engine.disown([p for p in self._engine.assignment() if p not in wanted])
        self._engine.own(wanted)

    def unassign(self) -> None:
        """Read nothing. Raises `AlreadySubscribed`, as `assign` does."""
        if self._place is not None:
            self._place.begin_alone()
        self._engine.disown(self._engine.assignment())

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read."""
        return set(self._engine.assignment())

    def pause(self, *partitions: Partition) -> None:
        """Get nothing of these until they are resumed; what was fetched of them is kept."""
        self._engine.pause(named(partitions), paused=True)

    def resume(self, *partitions: Partition) -> None:
        """Go on with these."""
        self._engine.pause(named(partitions), paused=False)

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return set(self._engine.paused())

    def positions(self) -> dict[TopicPartition, int]:
        """The offsets after the last records handed out, where they are known by now."""
        return self._engine.positions()

    # From where on.

    def seek(self, partition: Partition, offset: int) -> None:
        """Go on at this offset; nothing that was fetched before is handed out any more."""
        if offset < 0:
            raise BadOption(
                "offset", offset, "0 or more; or call seek_to_beginning() or seek_to_end()"
            )
        self._engine.seek(TopicPartition(*partition), offset)

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Go on at the first record there is, in all partitions if none is named."""
        self._engine.reset(named(partitions) or None, TO_EARLIEST)

    def seek_to_end(self, *partitions: Partition) -> None:
        """Go on after the last record there is, in all partitions if none is named."""
        self._engine.reset(named(partitions) or None, TO_LATEST)

    def seek_to_time(self, timestamp_ms: int, *partitions: Partition) -> None:
        """Go on at the first record of this time (ms since the epoch) or later.

        In all partitions if none is named; at the end where no record is that late.
        """
        if timestamp_ms < 0:
            raise BadOption("timestamp_ms", timestamp_ms, "ms since the epoch, 0 or more")
        self._engine.reset(named(partitions) or None, ResetTo(timestamp_ms))

    # Inside.

    def _limit(self, records_max: int | None) -> int:
        return self._engine.options.max_poll_records if records_max is None else records_max

    def _end_loan(self) -> None:
        """A loop over records is left: what it has not handed out comes again."""
        loan, self._loan = self._loan, None
        if loan is not None:
            loan.end()

    def _go_back(self, positions: Mapping[TopicPartition, int]) -> None:
        for partition in self._engine.assignment():
            if partition in positions:
                self._engine.seek(partition, positions[partition])

    def _lend(self) -> Loan | None:
        """Something for a loop over records, if there is anything."""
        taken = self._engine.lend(self._limit(None))
        if taken is not None:
            self._loan = Loan(self._engine, taken)
            self._engine.owner.returned()
        return self._loan


class Deadline:
    """When waiting is to end; None: never."""

    def __init__(self, timeout_ms: float | None) -> None:
        self._at = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000

    @property
    def left_s(self) -> float | None:
        """Seconds that are left, not below 0."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.left_s == 0.0


def batches(taken: Iterable[Taken]) -> Records:
    """What was taken, as users get it."""
    return Records([Batch(t.part.content, t.from_offset, t.to_offset) for t in taken])


def named(partitions: Iterable[Partition]) -> list[TopicPartition]:
    """The partitions as we name them."""
    return [TopicPartition(*partition) for partition in partitions]


def behind(
    positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    """The partitions that have not reached their ends."""
    return [p for p, end in ends.items() if p not in positions or positions[p] < end]
