"""DescribeAcls (API key 29): the access control lists that match a filter (KIP-140).

v2 flexible.
"""

from __future__ import annotations

from partage.wire.api import Api
from partage.wire.types import Array, Int8, Int16, Int32, Message, NullableString, String


class DescribeAclsRequest(Message):
    """The filter; None matches every name."""

    resource_type_filter: Int8
    resource_name_filter: NullableString
    pattern_type_filter: Int8 = 3
    principal_filter: NullableString
    host_filter: NullableString
    operation: Int8
    permission_type: Int8


class AclDescription(Message):
    """An access control entry."""

    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class DescribeAclsResource(Message):
    """A resource pattern and its entries."""

    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = 3
    acls: Array[AclDescription]


class DescribeAclsResponse(Message):
    """The matching entries, by resource pattern."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: NullableString
    resources: Array[DescribeAclsResource]


DESCRIBE_ACLS = Api(
    29,
    "DescribeAcls",
    DescribeAclsRequest,
    DescribeAclsResponse,
    versions=(1, 3),
    flexible=2,
)
