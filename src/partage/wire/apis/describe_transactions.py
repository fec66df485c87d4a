"""DescribeTransactions (API key 65): the state of transactional ids (KIP-664).

Flexible in all versions.
"""

from __future__ import annotations

from partage.wire.api import Api
from partage.wire.types import Array, Int16, Int32, Int64, Message, String


class DescribeTransactionsRequest(Message):
    """The transactional ids."""

    transactional_ids: Array[String]


class DescribedTransactionTopic(Message):
    """The partitions of one topic."""

    topic: String
    partitions: Array[Int32]


class DescribedTransaction(Message):
    """A transactional id and its transaction; the start time is -1 without a transaction."""

    error_code: Int16
    transactional_id: String
    transaction_state: String
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: Array[DescribedTransactionTopic]


class DescribeTransactionsResponse(Message):
    """The transactions, in the order of the request."""

    throttle_time_ms: Int32 = 0
    transaction_states: Array[DescribedTransaction]


DESCRIBE_TRANSACTIONS = Api(
    65,
    "DescribeTransactions",
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    versions=(0, 0),
    flexible=0,
)
