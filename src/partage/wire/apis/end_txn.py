"""EndTxn (API key 26): commits or aborts a transaction (KIP-98).

v2 PRODUCER_FENCED (KIP-588); v3 flexible; v4 TRANSACTION_ABORTABLE; v5 a new epoch for the next
transaction (KIP-890).
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.types import Bool, Int16, Int32, Int64, Message, Since, String


class EndTxnRequest(Message):
    """The transaction and its result; ``committed`` is False to abort it."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


class EndTxnResponse(Message):
    """The result. Producer id and epoch are those of the next transaction."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    producer_id: Annotated[Int64, Since(5)] = -1
    producer_epoch: Annotated[Int16, Since(5)] = -1


END_TXN = Api(26, "EndTxn", EndTxnRequest, EndTxnResponse, versions=(0, 5), flexible=3)
