"""Messages between `fetch_state_machine` and its shell, the `fetcher`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from partage.client.consumer.state import Ends, Lease, Part, ResetTo
from partage.client.metadata import TopicPartition


class Placement(msgspec.Struct, frozen=True):
    """The leader of a partition, its leader epoch, and the id of the topic."""

    leader_id: int
    leader_epoch: int
    topic_id: bytes


class Wanted(msgspec.Struct, frozen=True):
    """A partition in a fetch, with its fetch offset."""

    lease: Lease
    offset: int
    placement: Placement


class Fetch(msgspec.Struct, frozen=True):
    """A fetch request to send to a leader; `FetchStateMachine.fetch_done` must follow."""

    leader_id: int
    wanted: tuple[Wanted, ...]
    bytes_max: int


class Got(msgspec.Struct, frozen=True):
    """The successful response for one partition; ``chunk`` is None if it has no data."""

    part: Part | None = None
    ends: Ends = Ends()


class OutOfRange(msgspec.Struct, frozen=True):
    """The broker reported OFFSET_OUT_OF_RANGE."""


class TryAgain(msgspec.Struct, frozen=True):
    """A transient failure; retry at a time."""

    at_ms: int


class Failed(msgspec.Struct, frozen=True):
    """An error to raise to the user after all earlier records were delivered."""

    error: Exception


Answer = Got | OutOfRange | TryAgain | Failed
#: Returns True if records of a partition may be delivered now. It is called for each delivery.
MayDeliver = Callable[[TopicPartition], bool]


class Lookup(msgspec.Struct, frozen=True):
    """A partition whose start offset is unknown; a ``reset`` of None asks for the committed offset.
    """

    lease: Lease
    reset: ResetTo | None


class Taken(msgspec.Struct, frozen=True):
    """Records to deliver: those of a chunk with ``from_offset <= offset < to_offset``."""

    lease: Lease
    part: Part
    from_offset: int
    to_offset: int
