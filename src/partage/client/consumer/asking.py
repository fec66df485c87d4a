"""What `positions` asks the shell to do, and what the shell tells it of that."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from partage.client.consumer.state import Ends, Lease, Part, ResetTo
from partage.client.metadata import TopicPartition


class Placement(msgspec.Struct, frozen=True):
    """Where a partition is: its leader, since which epoch, and which topic of that name it is."""

    leader_id: int
    leader_epoch: int
    topic_id: bytes


class Wanted(msgspec.Struct, frozen=True):
    """A partition in a fetch, and from which offset on."""

    lease: Lease
    offset: int
    placement: Placement


class Fetch(msgspec.Struct, frozen=True):
    """A request to be sent to a leader; `Positions.done` is called when it is at its end."""

    leader_id: int
    wanted: tuple[Wanted, ...]
    bytes_max: int


class Got(msgspec.Struct, frozen=True):
    """A partition's answer; ``part`` is None if nothing was there."""

    part: Part | None = None
    ends: Ends = Ends()


class OutOfRange(msgspec.Struct, frozen=True):
    """The broker has no such offset."""


class TryAgain(msgspec.Struct, frozen=True):
    """What will pass by itself: ask again at a time."""

    at_ms: int


class Failed(msgspec.Struct, frozen=True):
    """What the user has to be told, once all before it is handed out."""

    error: Exception


Answer = Got | OutOfRange | TryAgain | Failed
#: Whether records of a partition may be handed out now; asked each time.
MayDeliver = Callable[[TopicPartition], bool]


class Lookup(msgspec.Struct, frozen=True):
    """A partition whose position is looked for; ``reset`` None asks for a committed offset."""

    lease: Lease
    reset: ResetTo | None


class Taken(msgspec.Struct, frozen=True):
    """Records to hand out: those of a part from ``from_offset`` to before ``to_offset``."""

    lease: Lease
    part: Part
    from_offset: int
    to_offset: int
