"""InitProducerId: ids for idempotent producers."""

from __future__ import annotations

from partage.broker.net.inbound_request import InboundRequest
from partage.broker.topics.producer_ids import ProducerIdManager
from partage.model.errors import ErrorCode
from partage.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def init_producer_id(inbound: InboundRequest, ids: ProducerIdManager) -> None:
    """Respond with a new producer id at epoch 0; reject transactional producers."""
    request: InitProducerIdRequest = inbound.message
    if request.transactional_id is not None:
        inbound.respond(
            InitProducerIdResponse(
                error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, producer_epoch=-1
            )
        )
        return
    inbound.respond(
        InitProducerIdResponse(
            error_code=ErrorCode.NONE, producer_id=ids.next_id(), producer_epoch=0
        )
    )
