"""ApiVersions (API key 18): the API versions that a broker supports.

v1 throttle time; v3 flexible, name of the client software (KIP-511), features (KIP-584); v4
features whose lowest version is 0 (KAFKA-17011).

A broker answers an unsupported request version in v0, with UNSUPPORTED_VERSION (35) and its
versions of this API (KIP-511). The response header never has tagged fields.
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import API_VERSIONS_KEY, Api
from partage.wire.types import Array, Bool, Int16, Int32, Int64, Message, Since, String, Tagged


class ApiVersionsRequest(Message):
    """The name and version of the client software."""

    client_software_name: Annotated[String, Since(3)] = ""
    client_software_version: Annotated[String, Since(3)] = ""


class ApiVersionRange(Message):
    """The supported versions of one API."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


class SupportedFeature(Message):
    """The supported levels of a feature."""

    name: String
    min_version: Int16
    max_version: Int16


class FinalizedFeature(Message):
    """The levels of a feature that the cluster uses."""

    name: String
    max_version_level: Int16
    min_version_level: Int16


class ApiVersionsResponse(Message):
    """The APIs and features of a broker. ``finalized_features_epoch`` is -1 if unknown."""

    error_code: Int16
    api_keys: Array[ApiVersionRange]
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    supported_features: Annotated[Array[SupportedFeature], Tagged(0, since=3)] = []
    finalized_features_epoch: Annotated[Int64, Tagged(1, since=3)] = -1
    finalized_features: Annotated[Array[FinalizedFeature], Tagged(2, since=3)] = []
    zk_migration_ready: Annotated[Bool, Tagged(3, since=3)] = False


API_VERSIONS = Api(
    API_VERSIONS_KEY,
    "ApiVersions",
    ApiVersionsRequest,
    ApiVersionsResponse,
    versions=(0, 4),
    flexible=3,
)
