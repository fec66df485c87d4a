"""DescribeConfigs (API key 32): the configs of topics and brokers (KIP-133).

v1 source of each value (KIP-226); v3 types and documentation (KIP-569); v4 flexible.
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.types import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableArray,
    NullableString,
    Since,
    String,
)


class DescribeConfigsResource(Message):
    """A resource (type 2 is a topic, 4 a broker). ``configuration_keys`` None requests all."""

    resource_type: Int8
    resource_name: String
    configuration_keys: NullableArray[String] = None


class DescribeConfigsRequest(Message):
    """The resources and the requested details."""

    resources: Array[DescribeConfigsResource]
    include_synonyms: Bool = False
    include_documentation: Annotated[Bool, Since(3)] = False


class DescribeConfigsSynonym(Message):
    """A config from which the value could come."""

    name: String
    value: NullableString
    source: Int8


class DescribeConfigsEntry(Message):
    """A config. ``value`` is None if it is sensitive."""

    name: String
    value: NullableString
    read_only: Bool
    config_source: Int8 = -1
    is_sensitive: Bool
    synonyms: Array[DescribeConfigsSynonym]
    config_type: Annotated[Int8, Since(3)] = 0
    documentation: Annotated[NullableString, Since(3)] = None


class DescribeConfigsResult(Message):
    """The configs of one resource."""

    error_code: Int16
    error_message: NullableString = None
    resource_type: Int8
    resource_name: String
    configs: Array[DescribeConfigsEntry]


class DescribeConfigsResponse(Message):
    """The configs of each resource of the request."""

    throttle_time_ms: Int32 = 0
    results: Array[DescribeConfigsResult]


DESCRIBE_CONFIGS = Api(
    32,
    "DescribeConfigs",
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    versions=(1, 4),
    flexible=4,
)
