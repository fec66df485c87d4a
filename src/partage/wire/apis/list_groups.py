"""ListGroups (API key 16): the groups that a broker coordinates.

v1 throttle time; v3 flexible; v4 states (KIP-518); v5 types (KIP-848).
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.types import Array, Int16, Int32, Message, Since, String


class ListGroupsRequest(Message):
    """Filters for states and types. An empty filter matches all groups."""

    states_filter: Annotated[Array[String], Since(4)] = []
    types_filter: Annotated[Array[String], Since(5)] = []


class ListedGroup(Message):
    """The summary of a group."""

    group_id: String
    protocol_type: String
    group_state: Annotated[String, Since(4)] = ""
    group_type: Annotated[String, Since(5)] = ""


class ListGroupsResponse(Message):
    """The groups that match the filters."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16
    groups: Array[ListedGroup]


LIST_GROUPS = Api(
    16, "ListGroups", ListGroupsRequest, ListGroupsResponse, versions=(0, 5), flexible=3
)
