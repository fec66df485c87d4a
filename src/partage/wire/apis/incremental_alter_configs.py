"""IncrementalAlterConfigs (API key 44): changes single configs and keeps the others (KIP-339).

v1 flexible.
"""

from __future__ import annotations

from typing import Final

from partage.wire.api import Api
from partage.wire.types import Array, Bool, Int8, Int16, Int32, Message, NullableString, String

#: Values of ``config_operation``. APPEND and SUBTRACT apply to configs that are lists.
SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3


class AlterableConfig(Message):
    """The operation on one config."""

    name: String
    config_operation: Int8
    value: NullableString


class AlterConfigsResource(Message):
    """The changes to one resource."""

    resource_type: Int8
    resource_name: String
    configs: Array[AlterableConfig]


class IncrementalAlterConfigsRequest(Message):
    """The changes to apply, or only to validate."""

    resources: Array[AlterConfigsResource]
    validate_only: Bool


class AlterConfigsResult(Message):
    """The result for one resource."""

    error_code: Int16
    error_message: NullableString
    resource_type: Int8
    resource_name: String


class IncrementalAlterConfigsResponse(Message):
    """The result for each resource of the request."""

    throttle_time_ms: Int32 = 0
    responses: Array[AlterConfigsResult]


INCREMENTAL_ALTER_CONFIGS = Api(
    44,
    "IncrementalAlterConfigs",
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    versions=(0, 1),
    flexible=1,
)
