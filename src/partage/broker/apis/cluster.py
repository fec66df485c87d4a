"""ApiVersions, DescribeCluster and FindCoordinator."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from partage.broker.cluster.broker_node import BrokerNode
from partage.broker.cluster.cluster_view import ClusterView
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.transactions.transaction_coordinator import TransactionCoordinator
from partage.model.errors import ErrorCode
from partage.wire.api import AnyApi
from partage.wire.apis.api_versions import (
    ApiVersionRange,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeature,
    SupportedFeature,
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
_NO_TRANSACTION_COORDINATOR = (
    "no broker coordinates this transactional id at the moment; another broker is taking it over"
)
_NO_SHARE_GROUPS = "this broker does not coordinate share groups"
_NO_TOPIC = "the topic __transaction_state cannot be created; see the log of the broker"

#: Features of this broker with their levels.
FEATURES: Final = {"group.version": 1, "transaction.version": 2}
_LEVEL_0_VERSION: Final = 4  # the first version of ApiVersions with features of level 0

_NAMES_SOFTWARE: Final = 3  # the first version of ApiVersions with the name of the client software
#: Names and versions of client software become metric names in Kafka (KIP-511).
_SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def api_versions(
    inbound: InboundRequest, apis: Iterable[AnyApi], features: Mapping[str, int]
) -> None:
    """Respond with the supported API versions and features.

    To a version that is not supported, respond with UNSUPPORTED_VERSION (35) in the format of
    version 0 (KIP-511). An illegal name or version of the client software gets INVALID_REQUEST.

    Args:
        inbound: the request.
        apis: the supported APIs.
        features: the features, each with its level. Lower levels are supported, too.
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
            supported_features=[
                SupportedFeature(
                    name=name,
                    # Earlier versions cannot express level 0 (KAFKA-17011).
                    min_version=0 if inbound.version >= _LEVEL_0_VERSION else 1,
                    max_version=level,
                )
                for name, level in features.items()
            ],
            finalized_features_epoch=0 if features else -1,
            finalized_features=[
                FinalizedFeature(name=name, max_version_level=level, min_version_level=level)
                for name, level in features.items()
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


async def find_coordinator(
    inbound: InboundRequest,
    cluster_view: ClusterView,
    transactions: TransactionCoordinator,
) -> None:
    """Respond with the coordinator of each group or transactional id.

    Args:
        inbound: the request.
        cluster_view: the brokers.
        transactions: the transaction coordinator. The topic of a single broker is created at the
            first request for a transactional id, as in Kafka.
    """
    request: FindCoordinatorRequest = inbound.message
    keys = request.coordinator_keys if inbound.version >= 4 else [request.key]
    if request.key_type == GROUP:
        results = [_group_coordinator(key, cluster_view) for key in keys]
    elif request.key_type == TRANSACTION:
        exists = await transactions.create_topic()
        results = [_transaction_coordinator(key, cluster_view, exists) for key in keys]
    else:
        error = ErrorCode.INVALID_REQUEST
        results = [_no_coordinator(key, error, _NO_SHARE_GROUPS) for key in keys]
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


def _group_coordinator(group_id: str, cluster_view: ClusterView) -> FindCoordinatorResult:
    node = cluster_view.coordinator(group_id)
    if node is None:
        return _no_coordinator(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE, _NO_COORDINATOR)
    return _coordinator(group_id, node)


def _transaction_coordinator(
    transactional_id: str, cluster_view: ClusterView, exists: bool
) -> FindCoordinatorResult:
    if not exists:
        return _no_coordinator(transactional_id, ErrorCode.COORDINATOR_NOT_AVAILABLE, _NO_TOPIC)
    node = cluster_view.transaction_coordinator(transactional_id)
    if node is None:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return _no_coordinator(transactional_id, error, _NO_TRANSACTION_COORDINATOR)
    return _coordinator(transactional_id, node)


def _coordinator(key: str, node: BrokerNode) -> FindCoordinatorResult:
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
