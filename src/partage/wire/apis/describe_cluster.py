"""DescribeCluster (API key 60): the brokers and the controller of a cluster (KIP-700).

v1 brokers or controllers (KIP-919); v2 fenced brokers (KIP-1073). Flexible in all versions.
"""

from __future__ import annotations

from typing import Annotated, Final

from partage.wire.api import Api
from partage.wire.apis.common import OPERATIONS_OMITTED
from partage.wire.types import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    Since,
    String,
)

#: Values of ``endpoint_type``.
BROKERS: Final = 1
CONTROLLERS: Final = 2


class DescribeClusterRequest(Message):
    """The requested details."""

    include_cluster_authorized_operations: Bool
    endpoint_type: Annotated[Int8, Since(1)] = BROKERS
    include_fenced_brokers: Annotated[Bool, Since(2)] = False


class DescribeClusterBroker(Message):
    """A broker and its address."""

    broker_id: Int32
    host: String
    port: Int32
    rack: NullableString = None
    is_fenced: Annotated[Bool, Since(2)] = False


class DescribeClusterResponse(Message):
    """The cluster. ``controller_id`` is -1 if unknown."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: NullableString = None
    endpoint_type: Annotated[Int8, Since(1)] = BROKERS
    cluster_id: String
    controller_id: Int32 = -1
    brokers: Array[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = OPERATIONS_OMITTED


DESCRIBE_CLUSTER = Api(
    60,
    "DescribeCluster",
    DescribeClusterRequest,
    DescribeClusterResponse,
    versions=(0, 2),
    flexible=0,
)
