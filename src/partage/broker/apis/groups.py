"""The APIs of groups: over the bridge to the coordinator."""

from __future__ import annotations

from typing import Any

from partage.bridge import EXCHANGES, Call, Exchange
from partage.bridge.exchange import Surroundings
from partage.broker.coordinator import Coordinator
from partage.broker.ids import fresh_id
from partage.broker.inbound import Handler, Inbound


def group_handlers(coordinator: Coordinator, surroundings: Surroundings) -> dict[int, Handler]:
    """A handler for each API of the bridge."""

    def handler_of(exchange: Exchange[Any, Any]) -> Handler:
        def handle(inbound: Inbound) -> None:
            call: Call[Any] = Call(
                exchange,
                inbound.version,
                inbound.message,
                surroundings,
                client_id=inbound.client_id,
                client_host=inbound.connection.client_host,
                at_ms=inbound.received_ms,
                fresh_id=fresh_id() if exchange.draws_ids else "",
            )
            call.origin = inbound
            coordinator.serve(call)

        return handle

    return {key: handler_of(exchange) for key, exchange in EXCHANGES.items()}
