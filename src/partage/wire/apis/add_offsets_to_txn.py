"""AddOffsetsToTxn (API key 25): adds the offsets of a group to a transaction (KIP-98).

v2 PRODUCER_FENCED (KIP-588); v3 flexible; v4 TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from partage.wire.api import Api
from partage.wire.types import Int16, Int32, Int64, Message, String


class AddOffsetsToTxnRequest(Message):
    """The transaction and the group."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


class AddOffsetsToTxnResponse(Message):
    """The result."""

    throttle_time_ms: Int32 = 0
    error_code: Int16


ADD_OFFSETS_TO_TXN = Api(
    25,
    "AddOffsetsToTxn",
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    versions=(0, 4),
    flexible=3,
)
