"""LeaveGroup (API key 13): removes members without waiting for their session timeout.

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
    """A member to remove. A static member may be given by its instance id alone."""

    member_id: String
    group_instance_id: NullableString = None
    reason: Annotated[NullableString, Since(5)] = None


class LeaveGroupRequest(Message):
    """The members to remove: ``member_id`` up to v2, ``members`` from v3 on."""

    group_id: String
    member_id: Annotated[String, Until(2)] = ""
    members: Annotated[Array[LeaveGroupMember], Since(3)] = []


class LeaveGroupMemberResult(Message):
    """The result for one member."""

    member_id: String
    group_instance_id: NullableString
    error_code: Int16


class LeaveGroupResponse(Message):
    """The results: ``error_code`` for the whole request, ``members`` for each member."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16
    members: Annotated[Array[LeaveGroupMemberResult], Since(3)] = []


LEAVE_GROUP = Api(
    13, "LeaveGroup", LeaveGroupRequest, LeaveGroupResponse, versions=(0, 5), flexible=4
)
