"""InitProducerId (API key 22): allocates a producer id and epoch (KIP-98).

v2 flexible; v3 epoch bump requested by the producer (KIP-360); v4 PRODUCER_FENCED (KIP-588); v5
TRANSACTION_ABORTABLE (KIP-890). v6 with two-phase commit (KIP-939) is not supported.
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.types import Int16, Int32, Int64, Message, NullableString, Since


class InitProducerIdRequest(Message):
    """The request of a producer. ``transactional_id`` is None if it is only idempotent."""

    transactional_id: NullableString
    transaction_timeout_ms: Int32
    producer_id: Annotated[Int64, Since(3)] = -1
    producer_epoch: Annotated[Int16, Since(3)] = -1


class InitProducerIdResponse(Message):
    """The producer's id and epoch."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    producer_id: Int64 = -1
    producer_epoch: Int16


INIT_PRODUCER_ID = Api(
    22, "InitProducerId", InitProducerIdRequest, InitProducerIdResponse, versions=(0, 5), flexible=2
)
