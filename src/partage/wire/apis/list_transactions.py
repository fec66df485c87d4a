"""ListTransactions (API key 66): the transactions of a coordinator (KIP-664).

v1 duration (KIP-994); v2 pattern of transactional ids (KIP-1152). Flexible in all versions.
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.types import (
    Array,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Since,
    String,
)


class ListTransactionsRequest(Message):
    """The filters; an empty list passes everything."""

    state_filters: Array[String]
    producer_id_filters: Array[Int64]
    duration_filter: Annotated[Int64, Since(1)] = -1
    transactional_id_pattern: Annotated[NullableString, Since(2)] = None


class ListedTransaction(Message):
    """A transaction."""

    transactional_id: String
    producer_id: Int64
    transaction_state: String


class ListTransactionsResponse(Message):
    """The transactions, and the states in the request that do not exist."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    unknown_state_filters: Array[String]
    transaction_states: Array[ListedTransaction]


LIST_TRANSACTIONS = Api(
    66,
    "ListTransactions",
    ListTransactionsRequest,
    ListTransactionsResponse,
    versions=(0, 2),
    flexible=0,
)
