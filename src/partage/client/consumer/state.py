"""What is known of one partition that a consumer owns; see `positions` for what is done with it."""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import Any, Final

import msgspec

from partage.client.metadata import TopicPartition
from partage.wire.apis.list_offsets import EARLIEST, LATEST

#: A position that is not known yet.
NOWHERE: Final = -1


class ResetTo(msgspec.Struct, frozen=True):
    """Where a partition is to be read from when no offset says so.

    ``timestamp_ms`` is a time or one of ``EARLIEST`` and ``LATEST``; with ``back_ms`` it is that
    long before the moment at which the offset is looked up (KIP-1106). A time after the last
    record stands for the end.
    """

    timestamp_ms: int = LATEST
    back_ms: int | None = None

    def at(self, now_ms: int) -> int:
        """The time to ask the broker for."""
        return self.timestamp_ms if self.back_ms is None else max(0, now_ms - self.back_ms)


TO_EARLIEST: Final = ResetTo(EARLIEST)
TO_LATEST: Final = ResetTo(LATEST)


class Lease:
    """The right to hand out a partition's records from one position on.

    A seek ends it and begins another, and so does losing the partition: whatever was asked, found
    or fetched under a lease that is over is dropped. Its marks are written by whoever holds the
    consumer's lock and read from any thread without it, so that a loop over records sees between
    two of them that they are no longer its own.

    ``handed`` is the offset after the last record that a loop has handed out of what it took,
    while it still has some: the position as the user sees it.
    """

    __slots__ = ("handed", "is_over", "is_paused", "partition")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.is_over = False
        self.is_paused = False
        self.handed: int | None = None


class Part(msgspec.Struct):
    """What one answer brought: records from ``from_offset`` to before ``to_offset``.

    ``content`` is whatever the shell makes records of; nothing here looks into it. None: there
    are offsets but no records, such as those of a transaction's markers.
    """

    from_offset: int
    to_offset: int
    size: int
    content: Any


class Phase(Enum):
    """What a partition needs before it can be fetched."""

    COMMITTED = auto()  #: to know whether an offset was committed
    RESET = auto()  #: to have an end, or a time, looked up
    READING = auto()  #: nothing: its position is known


class Ends(msgspec.Struct, frozen=True):
    """A partition's offsets as the last answer told them, -1 where it did not.

    ``stable`` is the first offset of a transaction that is not decided, or the end.
    """

    earliest: int = -1
    high_watermark: int = -1
    stable: int = -1


class PartitionState:
    """One partition.

    ``position`` is the next offset to be handed out, ``fetch_offset`` the next to be asked for;
    what lies between is in ``parts``. ``trouble`` is what the user is to be told, and ``lost``
    why ``fetch_offset`` is no place to read from, both once ``parts`` are handed out.
    """

    __slots__ = (
        "ends",
        "fetch_offset",
        "is_asked",
        "is_paused",
        "lease",
        "lost",
        "partition",
        "parts",
        "phase",
        "position",
        "reset",
        "retry_at_ms",
        "size",
        "topic_id",
        "trouble",
    )

    reset: ResetTo | None
    trouble: Exception | None
    lost: Exception | None

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.is_paused = False
        self.ends = Ends()
        self.parts: deque[Part] = deque()
        self.lease = Lease(partition)
        self._begin(Phase.COMMITTED)

    @property
    def is_deliverable(self) -> bool:
        """Whether there is something to be handed out."""
        return bool(self.parts) and not self.is_paused

    def renew(self, phase: Phase, *, position: int = NOWHERE, reset: ResetTo | None = None) -> None:
        """Begin anew under a new lease; whatever was under way is stale."""
        self.lease.is_over = True
        self.lease = Lease(self.partition)
        self.lease.is_paused = self.is_paused
        self._begin(phase, position, reset)

    def settle(self, position: int) -> None:
        """The offset that was looked for is found."""
        self.phase = Phase.READING
        self.position = self.fetch_offset = position
        self.reset = None

    def drop_parts(self) -> None:
        """Forget what was fetched and not handed out; it can be fetched again."""
        self.parts.clear()
        self.size = 0
        self.trouble = self.lost = None
        self.fetch_offset = self.position

    def _begin(self, phase: Phase, position: int = NOWHERE, reset: ResetTo | None = None) -> None:
        self.phase = phase
        self.reset = reset
        self.position = self.fetch_offset = position
        self.parts.clear()
        self.size = 0
        self.is_asked = False
        self.retry_at_ms = 0
        self.topic_id: bytes | None = None
        self.trouble = self.lost = None
