"""ListGroups (16): the groups that the broker coordinates.

v1 throttle time; v3 flexible; v4 states (KIP-518); v5 types (KIP-848).
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.types import Array, Int16, Int32, Message, Since, String


class ListGroupsRequest(Message):
    """Only groups in these states and of these types; an empty filter lets all through."""

    states_filter: Annotated[Array[String], Since(4)] = []
    types_filter: Annotated[Array[String], Since(5)] = []


class ListedGroup(Message):
    """A group in one line."""

    group_id: String
    protocol_type: String
    group_state: Annotated[String, Since(4)] = ""
    group_type: Annotated[String, Since(5)] = ""


class ListGroupsResponse(Message):
    """The groups that passed the filters."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16
    groups: Array[ListedGroup]


LIST_GROUPS = Api(
    16, "ListGroups", ListGroupsRequest, ListGroupsResponse, versions=(0, 5), flexible=3
)
