"""DescribeGroups (API key 15): groups with their members, metadata and assignments.

v1 throttle time; v3 authorized operations (KIP-430); v4 static members (KIP-345); v5 flexible; v6
error message, and GROUP_ID_NOT_FOUND instead of the state Dead (KIP-1043).
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.apis.common import OPERATIONS_OMITTED
from partage.wire.types import (
    Array,
    Bool,
    Bytes,
    Int16,
    Int32,
    Message,
    NullableString,
    Since,
    String,
)


class DescribeGroupsRequest(Message):
    """The ids of the groups."""

    groups: Array[String]
    include_authorized_operations: Annotated[Bool, Since(3)] = False


class DescribedGroupMember(Message):
    """A member. Its metadata and assignment are empty while the group is not stable."""

    member_id: String
    group_instance_id: Annotated[NullableString, Since(4)] = None
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes


class DescribedGroup(Message):
    """A group. ``protocol_data`` is the name of the selected protocol."""

    error_code: Int16
    error_message: Annotated[NullableString, Since(6)] = None
    group_id: String
    group_state: String
    protocol_type: String
    protocol_data: String
    members: Array[DescribedGroupMember]
    authorized_operations: Annotated[Int32, Since(3)] = OPERATIONS_OMITTED


class DescribeGroupsResponse(Message):
    """One entry for each group of the request."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    groups: Array[DescribedGroup]


DESCRIBE_GROUPS = Api(
    15, "DescribeGroups", DescribeGroupsRequest, DescribeGroupsResponse, versions=(0, 6), flexible=5
)
