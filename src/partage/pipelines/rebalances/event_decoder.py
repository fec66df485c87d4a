"""Decoder of group events that rejects numbers that the tables cannot hold.

Any client can write to a topic. A record with an impossible number, such as a time after the year
9999 or a partition above 31 bits, is not an event. It must not end the job.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from partage.store.group_events import EventMember, GroupEventRecord
from partage.wire.primitives import MalformedError

#: Ms since the epoch, before the year 10000.
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
    member_epoch: Annotated[int, Meta(ge=-2, lt=2**31)] | None = None
    revoking: _Partitions | None = None


class _Event(GroupEventRecord, frozen=True, kw_only=True):
    at_ms: _TimestampMs
    generation: _Generation
    session_timeout_ms: _Count | None = None
    members: list[_Member] | None = None  # type: ignore[assignment]  # frozen, so covariant
    part: _Count = 1
    parts: _Count = 1
    count: _Count = 1
    target_epoch: _Count | None = None
    moved: _Count | None = None
    lag: dict[str, dict[_Count, _Records]] | None = None
    broker_id: _Count | None = None
    epoch: _Epoch | None = None


_decoder: Final = msgspec.json.Decoder(_Event)


def parse_event(value: bytes) -> GroupEventRecord:
    """Decode the event in a record's value.

    Raises:
        Malformed: if the value is not an event, or has an impossible number.
    """
    try:
        return _decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedError(f"not a group event: {error}") from None
