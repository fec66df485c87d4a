"""AddPartitionsToTxn (API key 24): adds partitions to a transaction (KIP-98).

v2 PRODUCER_FENCED (KIP-588); v3 flexible; v4 several transactions, and checks without a change, for
requests of brokers (KIP-890); v5 TRANSACTION_ABORTABLE. Clients send v0 to v3 only.
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.types import Array, Bool, Int16, Int32, Int64, Message, Since, String, Until


class AddPartitionsToTxnTopic(Message):
    """The partitions of one topic."""

    name: String
    partitions: Array[Int32]


class AddPartitionsToTxnTransaction(Message):
    """A transaction and its new partitions; ``verify_only`` checks that it has them already."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Bool = False
    topics: Array[AddPartitionsToTxnTopic]


class AddPartitionsToTxnRequest(Message):
    """The partitions of one transaction up to v3, of several from v4 on."""

    transactions: Annotated[Array[AddPartitionsToTxnTransaction], Since(4)] = []
    v3_and_below_transactional_id: Annotated[String, Until(3)] = ""
    v3_and_below_producer_id: Annotated[Int64, Until(3)] = 0
    v3_and_below_producer_epoch: Annotated[Int16, Until(3)] = 0
    v3_and_below_topics: Annotated[Array[AddPartitionsToTxnTopic], Until(3)] = []


class AddPartitionsToTxnPartitionResult(Message):
    """The result for one partition."""

    partition_index: Int32
    partition_error_code: Int16


class AddPartitionsToTxnTopicResult(Message):
    """The results of one topic."""

    name: String
    results_by_partition: Array[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnResult(Message):
    """The results of one transaction."""

    transactional_id: String
    topic_results: Array[AddPartitionsToTxnTopicResult]


class AddPartitionsToTxnResponse(Message):
    """The results of one transaction up to v3, of several from v4 on."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(4)] = 0
    results_by_transaction: Annotated[Array[AddPartitionsToTxnResult], Since(4)] = []
    results_by_topic_v3_and_below: Annotated[Array[AddPartitionsToTxnTopicResult], Until(3)] = []


ADD_PARTITIONS_TO_TXN = Api(
    24,
    "AddPartitionsToTxn",
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    versions=(0, 5),
    flexible=3,
)
