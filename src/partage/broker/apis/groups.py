"""The APIs of groups: over the bridge to the coordinator."""

from __future__ import annotations

from typing import Any

from partage.bridge import API_ADAPTERS, ApiAdapter
from partage.bridge.api_adapter import BrokerContext
from partage.broker.coordinator import Coordinator
from partage.broker.ids import fresh_id
from partage.broker.inbound import Handler, Inbound
from partage.model.errors import ErrorCode
from partage.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatResponse,
)
from partage.wire.apis.join_group import JOIN_GROUP


def group_handlers(coordinator: Coordinator, surroundings: BrokerContext) -> dict[int, Handler]:
    """A handler for each API of the bridge."""

    def handler_of(exchange: ApiAdapter[Any, Any]) -> Handler:
        def handle(inbound: Inbound) -> None:
            coordinator.serve(inbound, inbound.start(exchange, surroundings))

        return handle

    def join_group(inbound: Inbound) -> None:
        exchange = API_ADAPTERS[JOIN_GROUP.key]
        coordinator.serve(inbound, inbound.start(exchange, surroundings, fresh_id()))

    return {
        **{key: handler_of(exchange) for key, exchange in API_ADAPTERS.items()},
        JOIN_GROUP.key: join_group,
        CONSUMER_GROUP_HEARTBEAT.key: _refuse_consumer_protocol,
    }


def _refuse_consumer_protocol(inbound: Inbound) -> None:
    """Kafka's answer where the protocol of KIP-848 is switched off.

    The API is offered for the sake of this answer alone: librdkafka, if it does not find it, goes
    on looking for a coordinator that has it, and tells its user nothing.
    """
    inbound.respond(
        ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            error_message="this broker does not offer group.protocol=consumer; set it to classic",
        )
    )
