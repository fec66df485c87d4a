"""LeaveGroup (13): members leave without waiting for their session to end.

v1 throttle time; v3 several members, static ones by their instance id (KIP-345); v4 flexible; v5
reason (KIP-800).
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.types import (
    Array,
    Int16,
    Int32,
    Message,
    NullableString,
    Since,
    String,
    Until,
)


class LeaveGroupMember(Message):
    """A member that leaves; a static one may be named by its instance id alone."""

    member_id: String
    group_instance_id: NullableString = None
    reason: Annotated[NullableString, Since(5)] = None


class LeaveGroupRequest(Message):
    """One ``member_id`` up to v2, any number in ``members`` from v3 on."""

    group_id: String
    member_id: Annotated[String, Until(2)] = ""
    members: Annotated[Array[LeaveGroupMember], Since(3)] = []


class LeaveGroupMemberResult(Message):
    """Whether one member has left."""

    member_id: String
    group_instance_id: NullableString
    error_code: Int16


class LeaveGroupResponse(Message):
    """``error_code`` speaks of the whole request, ``members`` of each one in it."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16
    members: Annotated[Array[LeaveGroupMemberResult], Since(3)] = []


LEAVE_GROUP = Api(
    13, "LeaveGroup", LeaveGroupRequest, LeaveGroupResponse, versions=(0, 5), flexible=4
)
