"""ListConfigResources (API key 74): the resources that have configs (KIP-1142).

v0 lists client metrics only (KIP-1000); v1 lists the given types. Flexible in all versions.
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.apis.common import ConfigResourceType
from partage.wire.types import Array, Int8, Int16, Int32, Message, Since, String


class ListConfigResourcesRequest(Message):
    """The resource types; an empty list requests all of them."""

    resource_types: Annotated[Array[Int8], Since(1)] = []


class ListedConfigResource(Message):
    """A resource."""

    resource_name: String
    resource_type: Annotated[Int8, Since(1)] = ConfigResourceType.CLIENT_METRICS


class ListConfigResourcesResponse(Message):
    """The resources of the requested types."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    config_resources: Array[ListedConfigResource]


LIST_CONFIG_RESOURCES = Api(
    74,
    "ListConfigResources",
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    versions=(0, 1),
    flexible=0,
)
