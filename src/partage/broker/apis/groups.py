"""The group APIs: from the wire through the bridge to the coordinator."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from partage.bridge import API_ADAPTERS, ApiAdapter
from partage.bridge.api_adapter import BrokerContext
from partage.broker.cluster.cluster_view import ClusterView
from partage.broker.coordination.group_coordinator import GroupCoordinator
from partage.broker.ids import IdSource
from partage.broker.net.inbound_request import Handler, InboundRequest
from partage.model.errors import ErrorCode
from partage.wire.apis.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from partage.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatResponse,
)
from partage.wire.apis.join_group import JOIN_GROUP
from partage.wire.apis.list_groups import LIST_GROUPS, ListGroupsResponse
from partage.wire.apis.txn_offset_commit import TXN_OFFSET_COMMIT


def group_handlers(
    coordinator: GroupCoordinator,
    cluster_view: ClusterView,
    broker_context: BrokerContext,
    protocols: Collection[str],
    ids: IdSource,
) -> dict[int, Handler]:
    """Return a handler for each API of the bridge.

    Args:
        coordinator: the group coordinator.
        cluster_view: the coordinators of other groups.
        broker_context: facts about the broker.
        protocols: the protocols of groups that are enabled. As in Kafka, the APIs of the consumer
            protocol are listed and get UNSUPPORTED_VERSION without it.
        ids: draws the ids of members.
    """

    def handler_of(exchange: ApiAdapter[Any, Any]) -> Handler:
        def handle(inbound: InboundRequest) -> None:
            coordinator.handle(inbound, inbound.start(exchange, broker_context))

        return handle

    list_own_groups = handler_of(API_ADAPTERS[LIST_GROUPS.key])

    def list_groups(inbound: InboundRequest) -> None:
        # As in Kafka, each broker lists the groups that it coordinates. While a group has no
        # coordinator, complete lists of all brokers would lack it.
        if cluster_view.has_all_group_coordinators():
            list_own_groups(inbound)
        else:
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            inbound.respond(ListGroupsResponse(error_code=error, groups=[]))

    def join_group(inbound: InboundRequest) -> None:
        exchange = API_ADAPTERS[JOIN_GROUP.key]
        coordinator.handle(inbound, inbound.start(exchange, broker_context, ids.fresh_id()))

    consumer_heartbeat_adapter = API_ADAPTERS[CONSUMER_GROUP_HEARTBEAT.key]

    def consumer_group_heartbeat(inbound: InboundRequest) -> None:
        # Clients of later versions choose their member ids.
        member_id = ids.fresh_id() if inbound.version == 0 else ""
        coordinator.handle(
            inbound, inbound.start(consumer_heartbeat_adapter, broker_context, member_id)
        )

    handlers = {
        **{
            key: handler_of(exchange)
            for key, exchange in API_ADAPTERS.items()
            if key != TXN_OFFSET_COMMIT.key  # the transactions add its handler
        },
        LIST_GROUPS.key: list_groups,
        JOIN_GROUP.key: join_group,
        CONSUMER_GROUP_HEARTBEAT.key: consumer_group_heartbeat,
    }
    if "consumer" not in protocols:
        handlers[CONSUMER_GROUP_HEARTBEAT.key] = _refuse_heartbeat
        handlers[CONSUMER_GROUP_DESCRIBE.key] = _refuse_description
    return handlers


def _refuse_heartbeat(inbound: InboundRequest) -> None:
    inbound.respond(
        ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, member_epoch=0, heartbeat_interval_ms=0
        )
    )


def _refuse_description(inbound: InboundRequest) -> None:
    error = ErrorCode.UNSUPPORTED_VERSION
    inbound.respond(
        ConsumerGroupDescribeResponse(
            groups=[
                DescribedConsumerGroup(error_code=error, group_id=group_id)
                for group_id in inbound.message.group_ids
            ]
        )
    )
