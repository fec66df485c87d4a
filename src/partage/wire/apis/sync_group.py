"""SyncGroup (API key 14): the second phase of a rebalance.

v1 throttle time; v3 static members (KIP-345); v4 flexible; v5 protocol type and name (KIP-559).

``assignment_error`` is an extension of Partage: a tagged field of request and response, from v4 on.
A leader whose assignor fails sends the reason. The coordinator forwards it to every member that
waits for an assignment of that generation. Clients and brokers that do not know the tag skip it.
"""

from __future__ import annotations

from typing import Annotated, Final

from partage.wire.api import Api
from partage.wire.types import (
    Array,
    Bytes,
    Int16,
    Int32,
    Message,
    NullableString,
    Since,
    String,
    Tagged,
)

#: Far above the tags that Kafka assigns, which count up from 0 in each structure.
ASSIGNMENT_ERROR_TAG: Final = 10_001


class SyncGroupAssignment(Message):
    """The assignment of one member."""

    member_id: String
    assignment: Bytes


class SyncGroupRequest(Message):
    """A member's request for its assignment. The leader's request contains all assignments."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: Annotated[NullableString, Since(3)] = None
    protocol_type: Annotated[NullableString, Since(5)] = None
    protocol_name: Annotated[NullableString, Since(5)] = None
    assignments: Array[SyncGroupAssignment]
    assignment_error: Annotated[NullableString, Tagged(ASSIGNMENT_ERROR_TAG, since=4)] = None


class SyncGroupResponse(Message):
    """The assignment of the member."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16
    protocol_type: Annotated[NullableString, Since(5)] = None
    protocol_name: Annotated[NullableString, Since(5)] = None
    assignment: Bytes
    assignment_error: Annotated[NullableString, Tagged(ASSIGNMENT_ERROR_TAG, since=4)] = None


SYNC_GROUP = Api(14, "SyncGroup", SyncGroupRequest, SyncGroupResponse, versions=(0, 5), flexible=4)
