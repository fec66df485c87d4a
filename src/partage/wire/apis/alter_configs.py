"""AlterConfigs (API key 33): replaces all configs of a resource (KIP-133).

`incremental_alter_configs` changes single configs instead. v2 flexible.
"""

from __future__ import annotations

from partage.wire.api import Api
from partage.wire.types import Array, Bool, Int8, Int16, Int32, Message, NullableString, String


class ReplacementConfig(Message):
    """A config that a resource keeps or gets."""

    name: String
    value: NullableString


class ReplacedConfigsResource(Message):
    """All configs of one resource; other configs are deleted."""

    resource_type: Int8
    resource_name: String
    configs: Array[ReplacementConfig]


class AlterConfigsRequest(Message):
    """The configs to set, or only to validate."""

    resources: Array[ReplacedConfigsResource]
    validate_only: Bool


class ReplacedConfigsResult(Message):
    """The result for one resource."""

    error_code: Int16
    error_message: NullableString
    resource_type: Int8
    resource_name: String


class AlterConfigsResponse(Message):
    """The result for each resource of the request."""

    throttle_time_ms: Int32 = 0
    responses: Array[ReplacedConfigsResult]


ALTER_CONFIGS = Api(
    33, "AlterConfigs", AlterConfigsRequest, AlterConfigsResponse, versions=(0, 2), flexible=2
)
