"""ListConfigResources: the names of topics and brokers, and of groups with altered configs."""

from __future__ import annotations

from collections.abc import Iterator

from partage.broker.cluster.cluster_view import ClusterView
from partage.broker.configs.dynamic_configs import DynamicConfigs
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.topics.log_manager import LogManager
from partage.model.errors import ErrorCode
from partage.wire.apis.common import ConfigResourceType
from partage.wire.apis.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListedConfigResource,
)


def list_config_resources(
    inbound: InboundRequest,
    log_manager: LogManager,
    cluster_view: ClusterView,
    dynamic_configs: DynamicConfigs,
) -> None:
    """Respond with the resources of the requested types, or of all types.

    No client metrics subscription exists, and the levels of loggers are no configs here.
    """
    request: ListConfigResourcesRequest = inbound.message
    types: set[int] = set(request.resource_types or ConfigResourceType)
    if inbound.version == 0:
        types = {ConfigResourceType.CLIENT_METRICS}
    error = ErrorCode.NONE
    resources: list[ListedConfigResource] = []
    if types <= set(ConfigResourceType):
        resources = [
            ListedConfigResource(resource_name=name, resource_type=kind)
            for kind, name in _resources(log_manager, cluster_view, dynamic_configs)
            if kind in types
        ]
    else:
        error = ErrorCode.UNSUPPORTED_VERSION
    inbound.respond(ListConfigResourcesResponse(error_code=error, config_resources=resources))


def _resources(
    log_manager: LogManager, cluster_view: ClusterView, dynamic_configs: DynamicConfigs
) -> Iterator[tuple[ConfigResourceType, str]]:
    for node in cluster_view.brokers():
        yield ConfigResourceType.BROKER, str(node.node_id)
    for topic in log_manager.topics():
        yield ConfigResourceType.TOPIC, topic.name
    for group_id in dynamic_configs.group_ids():
        yield ConfigResourceType.GROUP, group_id
