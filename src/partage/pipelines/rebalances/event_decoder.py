"""Events out of records, with figures that fit into tables.

A topic takes what anybody writes. A figure that no broker can mean (a time after the year 9999, a
partition beyond 32 bits) makes a record one that is no event; it does not end the job.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from partage.store.group_events import EventMember, GroupEventRecord
from partage.wire.primitives import MalformedError

#: Ms since the epoch, up to the year 9999.
_TimestampMs = Annotated[int, Meta(ge=0, lt=253_402_300_800_000)]
_Count = Annotated[int, Meta(ge=0, lt=2**31)]
_Generation = Annotated[int, Meta(ge=-1, lt=2**31)]
_Records = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Epoch = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Partitions = dict[str, list[_Count]]


class _Member(EventMember, frozen=True, kw_only=True):
    joined_ms: _TimestampMs | None = None
    owned: _Partitions | None = None
    assigned_ms: _TimestampMs | None = None
    assigned: _Partitions | None = None
    partition_count: _Count | None = None


class _Event(GroupEventRecord, frozen=True, kw_only=True):
    at_ms: _TimestampMs
    generation: _Generation
    session_timeout_ms: _Count | None = None
    members: list[_Member] | None = None  # type: ignore[assignment]  # frozen, so narrower will do
    part: _Count = 1
    parts: _Count = 1
    count: _Count = 1
    lag: dict[str, dict[_Count, _Records]] | None = None
    broker_id: _Count | None = None
    epoch: _Epoch | None = None


_decoder: Final = msgspec.json.Decoder(_Event)


def decode_event(value: bytes) -> GroupEventRecord:
    """The event in a record's value.

    Raises:
        Malformed: it is none, or has a figure that cannot be.
    """
    try:
        return _decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedError(f"not a group event: {error}") from None
