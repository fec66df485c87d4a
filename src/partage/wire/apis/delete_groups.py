"""DeleteGroups (API key 42): deletes groups without members, and their offsets (KIP-229).

v2 flexible.
"""

from __future__ import annotations

from partage.wire.api import Api
from partage.wire.types import Array, Int16, Int32, Message, String


class DeleteGroupsRequest(Message):
    """The ids of the groups."""

    groups_names: Array[String]


class DeleteGroupsResult(Message):
    """The result for one group."""

    group_id: String
    error_code: Int16


class DeleteGroupsResponse(Message):
    """The result for each group of the request."""

    throttle_time_ms: Int32 = 0
    results: Array[DeleteGroupsResult]


DELETE_GROUPS = Api(
    42, "DeleteGroups", DeleteGroupsRequest, DeleteGroupsResponse, versions=(0, 2), flexible=2
)
