"""ListTransactions: this broker coordinates no transactions."""

from __future__ import annotations

from typing import Final

from partage.broker.net.inbound_request import InboundRequest
from partage.model.errors import ErrorCode
from partage.wire.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse

#: Kafka's states of a transaction.
_STATES: Final = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)


def list_transactions(inbound: InboundRequest) -> None:
    """Respond with an empty list, and the requested states that do not exist."""
    request: ListTransactionsRequest = inbound.message
    unknown = [state for state in request.state_filters if state not in _STATES]
    inbound.respond(
        ListTransactionsResponse(
            error_code=ErrorCode.NONE,
            unknown_state_filters=list(dict.fromkeys(unknown)),
            transaction_states=[],
        )
    )
