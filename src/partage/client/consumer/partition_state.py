"""The state of one assigned partition; `fetch_state_machine` changes it."""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import Any, Final

import msgspec

from partage.client.read_replica import ReadReplica
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.list_offsets import EARLIEST, LATEST

#: A position that is not known yet.
UNKNOWN_POSITION: Final = -1


class ResetTarget(msgspec.Struct, frozen=True):
    """The position to use if no offset is known, or on request of the user.

    Attributes:
        timestamp_ms: A timestamp, ``EARLIEST`` or ``LATEST``. After the last record it means the
            end.
        back_ms: Time before the moment of the lookup; it replaces ``timestamp_ms`` (KIP-1106).
    """

    timestamp_ms: int = LATEST
    back_ms: int | None = None

    def timestamp_at(self, now_ms: int) -> int:
        """Return the timestamp for a ListOffsets request."""
        return self.timestamp_ms if self.back_ms is None else max(0, now_ms - self.back_ms)


TO_EARLIEST: Final = ResetTarget(EARLIEST)
TO_LATEST: Final = ResetTarget(LATEST)


class DeliveryPermit:
    """The permit to deliver records of a partition from one position on.

    A seek or the loss of the partition revokes it, and a seek creates a new one. Requests and data
    under a revoked permit are dropped. Its fields are written under the consumer's lock and read by
    any thread without it, so a record loop notices a revocation between two records.

    Attributes:
        delivered_offset: The offset after the last record that a `RecordCursor` delivered; None if
            there is no open cursor. It is the position that the user sees.
    """

    __slots__ = ("delivered_offset", "is_paused", "is_revoked", "partition")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.is_revoked = False
        self.is_paused = False
        self.delivered_offset: int | None = None


class FetchedChunk(msgspec.Struct):
    """Fetched data of one partition: records with ``from_offset <= offset < to_offset``.

    Attributes:
        content: The data, which only the shell interprets. None if there are offsets without
            records, such as control batches of transactions.
    """

    from_offset: int
    to_offset: int
    size: int
    content: Any


class FetchState(Enum):
    """The step that a partition needs next."""

    INITIALIZING = auto()  #: the committed offset is looked up
    AWAIT_RESET = auto()  #: an end, or the offset of a timestamp, is looked up
    FETCHING = auto()  #: the position is known


class LogOffsets(msgspec.Struct, frozen=True):
    """A partition's offsets in the last Fetch response, -1 if unknown.

    ``last_stable`` is the first offset of an undecided transaction, or the high watermark.
    """

    log_start: int = -1
    high_watermark: int = -1
    last_stable: int = -1


class TopicPartitionState:
    """The state of one partition.

    Args:
        partition: The partition.
        read_replica: The broker to fetch from.
        assigned_id: The id of the topic that the coordinator assigned; None if it assigns names.

    Attributes:
        position: The offset of the next record to deliver.
        fetch_offset: The next offset to fetch; the data between the two is in ``chunks``.
        error: An error to raise to the user after the delivery of ``chunks``.
        last_error: The reason for which the position is not known yet.
        position_error: The reason to reset the position after the delivery of ``chunks``.
        topic_id: The id of the topic to which the position belongs; None until it is known.
        origin: The lookup that found the position; None for the committed offset, and for an offset
            that the user chose.
        is_chosen: The user chose the position.
        is_confirmed: The leader has answered a fetch at the position: it belongs to ``topic_id``.
        read_replica: The broker to fetch from. As in Kafka's client, a seek does not change it.
    """

    __slots__ = (
        "assigned_id",
        "buffered_bytes",
        "chunks",
        "error",
        "fetch_offset",
        "fetch_state",
        "is_chosen",
        "is_confirmed",
        "is_in_flight",
        "is_paused",
        "last_error",
        "log_offsets",
        "origin",
        "partition",
        "permit",
        "position",
        "position_error",
        "read_replica",
        "reset",
        "retry_at_ms",
        "topic_id",
    )

    reset: ResetTarget | None
    origin: ResetTarget | None
    error: Exception | None
    position_error: Exception | None
    last_error: Exception | None

    def __init__(
        self,
        partition: TopicPartition,
        read_replica: ReadReplica,
        assigned_id: bytes | None = None,
    ) -> None:
        self.partition = partition
        self.assigned_id = assigned_id
        self.read_replica = read_replica
        self.is_paused = False
        self.log_offsets = LogOffsets()
        self.chunks: deque[FetchedChunk] = deque()
        self.permit = DeliveryPermit(partition)
        self._begin(FetchState.INITIALIZING)

    @property
    def is_deliverable(self) -> bool:
        """True if there is data to deliver."""
        return bool(self.chunks) and not self.is_paused

    def restart(
        self,
        phase: FetchState,
        *,
        position: int = UNKNOWN_POSITION,
        reset: ResetTarget | None = None,
    ) -> None:
        """Start again with a new permit; results of pending requests become stale."""
        self.permit.is_revoked = True
        self.permit = DeliveryPermit(self.partition)
        self.permit.is_paused = self.is_paused
        self._begin(phase, position, reset)

    def set_position(self, position: int) -> None:
        """Set the position that a lookup found."""
        self.fetch_state = FetchState.FETCHING
        self.position = self.fetch_offset = position
        self.origin, self.reset, self.last_error = self.reset, None, None

    def look_up_again(self) -> None:
        """Look the position up as before, in another topic of the same name."""
        is_reset = self.origin is not None
        phase = FetchState.AWAIT_RESET if is_reset else FetchState.INITIALIZING
        self.restart(phase, reset=self.origin)

    def drop_chunks(self) -> None:
        """Drop fetched data that is not delivered; it can be fetched again."""
        self.chunks.clear()
        self.buffered_bytes = 0
        self.error = self.position_error = None
        self.fetch_offset = self.position

    def _begin(
        self, phase: FetchState, position: int = UNKNOWN_POSITION, reset: ResetTarget | None = None
    ) -> None:
        self.fetch_state = phase
        self.reset = reset
        self.origin = None
        self.is_chosen = position != UNKNOWN_POSITION
        self.is_confirmed = False
        self.position = self.fetch_offset = position
        self.chunks.clear()
        self.buffered_bytes = 0
        self.is_in_flight = False
        self.retry_at_ms = 0
        self.topic_id = self.assigned_id
        self.error = self.position_error = self.last_error = None
