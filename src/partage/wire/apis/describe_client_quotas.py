"""DescribeClientQuotas (API key 48): the quotas of users, clients and addresses (KIP-546).

v1 flexible.
"""

from __future__ import annotations

from partage.wire.api import Api
from partage.wire.types import (
    Array,
    Bool,
    Float64,
    Int8,
    Int16,
    Int32,
    Message,
    NullableArray,
    NullableString,
    String,
)


class QuotaFilterComponent(Message):
    """A filter: an entity type, and how its name is matched."""

    entity_type: String
    match_type: Int8
    match: NullableString


class DescribeClientQuotasRequest(Message):
    """The filters; with ``strict`` an entity has no other component."""

    components: Array[QuotaFilterComponent]
    strict: Bool


class QuotaEntityComponent(Message):
    """A component of an entity; the name None is the default."""

    entity_type: String
    entity_name: NullableString


class QuotaValue(Message):
    """A quota."""

    key: String
    value: Float64


class QuotaEntry(Message):
    """An entity and its quotas."""

    entity: Array[QuotaEntityComponent]
    values: Array[QuotaValue]


class DescribeClientQuotasResponse(Message):
    """The quotas; ``entries`` is None after an error."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: NullableString
    entries: NullableArray[QuotaEntry]


DESCRIBE_CLIENT_QUOTAS = Api(
    48,
    "DescribeClientQuotas",
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    versions=(0, 1),
    flexible=1,
)
