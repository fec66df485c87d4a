"""ApiVersions, DescribeCluster and FindCoordinator."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from partage.broker.cluster.cluster_view import ClusterView
from partage.broker.net.inbound_request import InboundRequest
from partage.model.errors import ErrorCode
from partage.wire.api import AnyApi
from partage.wire.apis.api_versions import (
    ApiVersionRange,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from partage.wire.apis.common import CLUSTER_OPERATIONS, OPERATIONS_OMITTED
from partage.wire.apis.describe_cluster import (
    BROKERS,
    CONTROLLERS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from partage.wire.apis.find_coordinator import (
    GROUP,
    TRANSACTION,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResult,
)

_NO_COORDINATOR = "no broker coordinates this group at the moment; another broker is taking it over"
_GROUPS_ONLY = "this broker coordinates consumer groups only, neither transactions nor share groups"

_NAMES_SOFTWARE: Final = 3  # the first version of ApiVersions with the name of the client software
#: Names and versions of client software become metric names in Kafka (KIP-511).
_SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def api_versions(inbound: InboundRequest, apis: Iterable[AnyApi]) -> None:
    """Respond with the supported API versions.

    To a version that is not supported, respond with UNSUPPORTED_VERSION (35) in the format of
    version 0 (KIP-511). An illegal name or version of the client software gets INVALID_REQUEST.
    """
    request: ApiVersionsRequest | None = inbound.message
    error = ErrorCode.NONE
    if request is None:
        error = ErrorCode.UNSUPPORTED_VERSION
    elif inbound.version >= _NAMES_SOFTWARE and not _has_legal_software(request):
        inbound.respond(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[]))
        return
    inbound.respond(
        ApiVersionsResponse(
            error_code=error,
            api_keys=[
                ApiVersionRange(
                    api_key=api.key, min_version=api.version_min, max_version=api.version_max
                )
                for api in apis
            ],
        )
    )


def _has_legal_software(request: ApiVersionsRequest) -> bool:
    texts = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE_NAME.fullmatch(text) for text in texts)


def describe_cluster(inbound: InboundRequest, cluster_view: ClusterView) -> None:
    """Respond with the live brokers; the controller is one of them.

    Version 0 has no endpoint type. Later versions can ask for controllers, which do not exist here.
    """
    request: DescribeClusterRequest = inbound.message
    if request.endpoint_type != BROKERS:
        is_known = request.endpoint_type == CONTROLLERS
        error = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        inbound.respond(
            DescribeClusterResponse(
                error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else error,
                error_message=f"this is a broker; endpoint type {request.endpoint_type} was "
                "requested",
                cluster_id="",
                brokers=[],
            )
        )
        return
    is_included = request.include_cluster_authorized_operations
    inbound.respond(
        DescribeClusterResponse(
            error_code=ErrorCode.NONE,
            cluster_id=cluster_view.node.cluster_id,
            controller_id=cluster_view.controller_id(),
            brokers=[
                DescribeClusterBroker(
                    broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack
                )
                for node in cluster_view.brokers()
            ],
            cluster_authorized_operations=CLUSTER_OPERATIONS if is_included else OPERATIONS_OMITTED,
        )
    )


def find_coordinator(inbound: InboundRequest, cluster_view: ClusterView) -> None:
    """Respond with the coordinator of each group.

    Coordinators of transactions and of share groups do not exist here.
    """
    request: FindCoordinatorRequest = inbound.message
    keys = request.coordinator_keys if inbound.version >= 4 else [request.key]
    results = [_coordinator(key, request.key_type, cluster_view) for key in keys]
    if inbound.version >= 4:
        inbound.respond(FindCoordinatorResponse(coordinators=results))
        return
    (only,) = results
    inbound.respond(
        FindCoordinatorResponse(
            error_code=only.error_code,
            error_message=only.error_message,
            node_id=only.node_id,
            host=only.host,
            port=only.port,
        )
    )


def _coordinator(key: str, key_type: int, cluster_view: ClusterView) -> FindCoordinatorResult:
    if key_type != GROUP:
        # Transactional producers of all clients give up at once on this error. They take other
        # errors for a temporary failure and retry forever.
        is_transaction = key_type == TRANSACTION
        error = ErrorCode.INVALID_REQUEST
        if is_transaction:
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _no_coordinator(key, error, _GROUPS_ONLY)
    node = cluster_view.coordinator(key)
    if node is None:
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, _NO_COORDINATOR)
    return FindCoordinatorResult(
        key=key,
        node_id=node.node_id,
        host=node.host,
        port=node.port,
        error_code=ErrorCode.NONE,
        error_message=None,
    )


def _no_coordinator(key: str, error: ErrorCode, message: str) -> FindCoordinatorResult:
    return FindCoordinatorResult(
        key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message
    )
