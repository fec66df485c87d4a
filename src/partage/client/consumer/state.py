"""The state of one assigned partition; `fetch_state_machine` changes it."""

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
    """The position to use if no offset is known, or on request of the user.

    Attributes:
        timestamp_ms: A timestamp, ``EARLIEST`` or ``LATEST``. After the last record it means the
            end.
        back_ms: Time before the moment of the lookup; it replaces ``timestamp_ms`` (KIP-1106).
    """

    timestamp_ms: int = LATEST
    back_ms: int | None = None

    def at(self, now_ms: int) -> int:
        """Return the timestamp for a ListOffsets request."""
        return self.timestamp_ms if self.back_ms is None else max(0, now_ms - self.back_ms)


TO_EARLIEST: Final = ResetTo(EARLIEST)
TO_LATEST: Final = ResetTo(LATEST)


class Lease:
    """The permit to deliver records of a partition from one position on.

    A seek or the loss of the partition revokes it, and a seek creates a new one. Requests and data
    under a revoked permit are dropped. Its fields are written under the consumer's lock and read by
    any thread without it, so a record loop notices a revocation between two records.

    Attributes:
        delivered_offset: The offset after the last record that a `RecordCursor` delivered; None if
            there is no open cursor. It is the position that the user sees.
    """

    __slots__ = ("handed", "is_over", "is_paused", "partition")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.is_over = False
        self.is_paused = False
        self.handed: int | None = None


class Part(msgspec.Struct):
    """Fetched data of one partition: records with ``from_offset <= offset < to_offset``.

    Attributes:
        content: The data, which only the shell interprets. None if there are offsets without
            records,
            such as control batches of transactions.
    """

    from_offset: int
    to_offset: int
    size: int
    content: Any


class Phase(Enum):
    """The step that a partition needs next."""

    COMMITTED = auto()  #: the committed offset is looked up
    RESET = auto()  #: an end, or the offset of a timestamp, is looked up
    READING = auto()  #: the position is known


class Ends(msgspec.Struct, frozen=True):
    """A partition's offsets in the last Fetch response, -1 if unknown.

    ``last_stable`` is the first offset of an undecided transaction, or the high watermark.
    """

    earliest: int = -1
    high_watermark: int = -1
    stable: int = -1


class PartitionState:
    """The state of one partition.

    Attributes:
        position: The offset of the next record to deliver.
        fetch_offset: The next offset to fetch; the data between the two is in ``chunks``.
        error: An error to raise to the user after the delivery of ``chunks``.
        position_error: The reason to reset the position after the delivery of ``chunks``.
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
        """True if there is data to deliver."""
        return bool(self.parts) and not self.is_paused

    def renew(self, phase: Phase, *, position: int = NOWHERE, reset: ResetTo | None = None) -> None:
        """Start again with a new permit; results of pending requests become stale."""
        self.lease.is_over = True
        self.lease = Lease(self.partition)
        self.lease.is_paused = self.is_paused
        self._begin(phase, position, reset)

    def settle(self, position: int) -> None:
        """Set the position that a lookup found."""
        self.phase = Phase.READING
        self.position = self.fetch_offset = position
        self.reset = None

    def drop_parts(self) -> None:
        """Drop fetched data that is not delivered; it can be fetched again."""
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
