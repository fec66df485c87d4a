"""The APIs of groups: over the bridge to the coordinator."""

from __future__ import annotations

from typing import Any

from partage.bridge import EXCHANGES, Exchange
from partage.bridge.exchange import Surroundings
from partage.broker.coordinator import Coordinator
from partage.broker.ids import fresh_id
from partage.broker.inbound import Handler, Inbound
from partage.wire.apis.join_group import JOIN_GROUP


def group_handlers(coordinator: Coordinator, surroundings: Surroundings) -> dict[int, Handler]:
    """A handler for each API of the bridge."""

    def handler_of(exchange: Exchange[Any, Any]) -> Handler:
        def handle(inbound: Inbound) -> None:
            coordinator.serve(inbound, inbound.begin(exchange, surroundings))

        return handle

    def join_group(inbound: Inbound) -> None:
        exchange = EXCHANGES[JOIN_GROUP.key]
        coordinator.serve(inbound, inbound.begin(exchange, surroundings, fresh_id()))

    return {
        **{key: handler_of(exchange) for key, exchange in EXCHANGES.items()},
        JOIN_GROUP.key: join_group,
    }
