"""CreateAcls (API key 30): adds access control entries (KIP-140).

v2 flexible.
"""

from __future__ import annotations

from partage.wire.api import Api
from partage.wire.types import Array, Int8, Int16, Int32, Message, NullableString, String


class AclCreation(Message):
    """An entry to add to a resource pattern."""

    resource_type: Int8
    resource_name: String
    resource_pattern_type: Int8 = 3
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class CreateAclsRequest(Message):
    """The entries."""

    creations: Array[AclCreation]


class AclCreationResult(Message):
    """The result for an entry."""

    error_code: Int16
    error_message: NullableString


class CreateAclsResponse(Message):
    """A result for each entry, in the order of the request."""

    throttle_time_ms: Int32 = 0
    results: Array[AclCreationResult]


CREATE_ACLS = Api(
    30,
    "CreateAcls",
    CreateAclsRequest,
    CreateAclsResponse,
    versions=(1, 3),
    flexible=2,
)
