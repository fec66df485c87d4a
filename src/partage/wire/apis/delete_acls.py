"""DeleteAcls (API key 31): removes the access control entries that match filters (KIP-140).

v2 flexible.
"""

from __future__ import annotations

from partage.wire.api import Api
from partage.wire.types import Array, Int8, Int16, Int32, Message, NullableString, String


class DeleteAclsFilter(Message):
    """A filter; None matches every name."""

    resource_type_filter: Int8
    resource_name_filter: NullableString
    pattern_type_filter: Int8 = 3
    principal_filter: NullableString
    host_filter: NullableString
    operation: Int8
    permission_type: Int8


class DeleteAclsRequest(Message):
    """The filters."""

    filters: Array[DeleteAclsFilter]


class DeleteAclsMatchingAcl(Message):
    """An entry that a filter matched."""

    error_code: Int16
    error_message: NullableString
    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = 3
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class DeleteAclsFilterResult(Message):
    """The result for a filter."""

    error_code: Int16
    error_message: NullableString
    matching_acls: Array[DeleteAclsMatchingAcl]


class DeleteAclsResponse(Message):
    """A result for each filter, in the order of the request."""

    throttle_time_ms: Int32 = 0
    filter_results: Array[DeleteAclsFilterResult]


DELETE_ACLS = Api(
    31,
    "DeleteAcls",
    DeleteAclsRequest,
    DeleteAclsResponse,
    versions=(1, 3),
    flexible=2,
)
