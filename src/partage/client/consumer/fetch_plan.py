"""Messages between `fetch_state_machine` and its shell, the `fetcher`."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from partage.client.consumer.partition_state import (
    DeliveryPermit,
    FetchedChunk,
    LogOffsets,
    ResetTarget,
)
from partage.client.metadata import LeaderAndEpoch
from partage.model.topic_partition import TopicPartition


class Placement(msgspec.Struct, frozen=True):
    """The leader of a partition, the id of the topic, and the ids of the online replicas."""

    leadership: LeaderAndEpoch
    topic_id: bytes
    online_replicas: Collection[int] = ()


class PartitionFetch(msgspec.Struct, frozen=True):
    """A partition in a fetch, with its fetch offset and the broker to ask."""

    permit: DeliveryPermit
    offset: int
    placement: Placement
    broker_id: int

    @property
    def is_from_follower(self) -> bool:
        """True if the broker is a follower, which the leader preferred (KIP-392)."""
        return self.broker_id != self.placement.leadership.leader_id


class PlannedFetch(msgspec.Struct, frozen=True):
    """A fetch request to send to a broker; `FetchStateMachine.fetch_done` must follow."""

    broker_id: int
    partitions: tuple[PartitionFetch, ...]
    bytes_max: int


class FetchedData(msgspec.Struct, frozen=True):
    """The successful response for one partition; ``chunk`` is None if it has no data.

    ``preferred_replica`` is the follower to read from (KIP-392); -1 if there is none.
    """

    chunk: FetchedChunk | None = None
    log_offsets: LogOffsets = LogOffsets()
    preferred_replica: int = -1


class OutOfRange(msgspec.Struct, frozen=True):
    """The broker reported OFFSET_OUT_OF_RANGE."""


class RetryLater(msgspec.Struct, frozen=True):
    """A transient failure; retry at a time, at the leader unless ``keeps_replica`` is true.

    ``error`` is the reason, for a call that waits for the position.
    """

    at_ms: int
    keeps_replica: bool = False
    error: Exception | None = None


class PermanentFailure(msgspec.Struct, frozen=True):
    """An error to raise to the user after all earlier records were delivered."""

    error: Exception


FetchResult = FetchedData | OutOfRange | RetryLater | PermanentFailure
#: Returns True if records of a partition may be delivered now. It is called for each delivery.
MayDeliver = Callable[[TopicPartition], bool]


class OffsetLookup(msgspec.Struct, frozen=True):
    """A partition whose start offset is unknown; ``reset`` None means the committed offset."""

    permit: DeliveryPermit
    reset: ResetTarget | None


class RecordRange(msgspec.Struct, frozen=True):
    """Records to deliver: those of a chunk with ``from_offset <= offset < to_offset``."""

    permit: DeliveryPermit
    chunk: FetchedChunk
    from_offset: int
    to_offset: int
