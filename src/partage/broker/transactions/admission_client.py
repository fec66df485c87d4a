"""Questions of a partition's leader to the transaction coordinator on another broker (KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from partage.broker.cluster.broker_node import BrokerNode
from partage.broker.cluster.cluster_view import ClusterView
from partage.broker.cluster.peer_connection import PeerConnection
from partage.broker.transactions import waiting_requests
from partage.broker.transactions.peer_queue import PeerQueues, Report
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from partage.wire.primitives import MalformedError

_VERSION: Final = 5
_PARTITIONS_PER_REQUEST: Final = 512
#: Kafka's default of ``add.partitions.to.txn.retry.backoff.ms``.
_RETRY_AFTER_S: Final = 0.02


class AdmissionRequest(NamedTuple):
    """A question about the partitions of one transaction; see `TransactionParticipation.admit`."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    adds: bool
    done: Callable[[Mapping[TopicPartition, ErrorCode]], None]

    def fail(self) -> None:
        """Report that the coordinator did not answer."""
        self.done(dict.fromkeys(self.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))


class AdmissionClient(PeerQueues[AdmissionRequest]):
    """Sends AddPartitionsToTxn to the coordinators of transactional ids."""

    def __init__(self, cluster_view: ClusterView) -> None:
        super().__init__(cluster_view)
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    def close(self) -> None:
        """Stop; pending requests get no result."""
        self._is_closed = True
        super().close()

    def is_local(self, transactional_id: str) -> bool:
        """True if this broker is the coordinator of a transactional id."""
        node = self._cluster_view.transaction_coordinator(transactional_id)
        return node is not None and node.node_id == self._cluster_view.node.node_id

    def has_all_coordinators(self) -> bool:
        """True if each transactional id has a coordinator."""
        return self._cluster_view.has_all_transaction_coordinators()

    def submit(self, request: AdmissionRequest) -> None:
        """Ask the coordinator, repeatedly while the previous transaction lacks markers."""
        self._submit(request, self._loop.time() + waiting_requests.WAIT_MAX_S)

    def _submit(self, request: AdmissionRequest, give_up_s: float) -> None:
        if self._is_closed:
            return
        request = request._replace(done=partial(self._on_result, request, give_up_s))
        node = self._cluster_view.transaction_coordinator(request.transactional_id)
        if node is None:
            self._loop.call_soon(request.fail)
        else:
            self._put(node.node_id, request)

    def _on_result(
        self,
        request: AdmissionRequest,
        give_up_s: float,
        errors: Mapping[TopicPartition, ErrorCode],
    ) -> None:
        is_early = set(errors.values()) == {ErrorCode.CONCURRENT_TRANSACTIONS}
        if request.adds and is_early and self._loop.time() < give_up_s:
            self._loop.call_later(_RETRY_AFTER_S, self._submit, request, give_up_s)
        else:
            request.done(errors)

    def _take(self, pending: list[AdmissionRequest]) -> list[AdmissionRequest]:
        count = partition_count = 0
        while count < len(pending) and partition_count < _PARTITIONS_PER_REQUEST:
            partition_count += len(pending[count].partitions)
            count += 1
        taken = pending[:count]
        del pending[:count]
        return taken

    def _fail(self, item: AdmissionRequest) -> None:
        item.fail()

    async def _send(
        self, node: BrokerNode, connection: PeerConnection, items: list[AdmissionRequest]
    ) -> list[Report]:
        request = AddPartitionsToTxnRequest(transactions=[_transaction(item) for item in items])
        response = await connection.request(node, ADD_PARTITIONS_TO_TXN, _VERSION, request)
        if response.error_code:
            raise MalformedError(f"AddPartitionsToTxn failed with error {response.error_code}")
        results = response.results_by_transaction
        if [result.transactional_id for result in results] != [i.transactional_id for i in items]:
            raise MalformedError("AddPartitionsToTxn returned other transactions")
        errors = [_errors(result) for result in results]
        return [
            partial(item.done, found) if found.keys() == set(item.partitions) else item.fail
            for item, found in zip(items, errors, strict=True)
        ]


def _transaction(item: AdmissionRequest) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, index in item.partitions:
        topics.setdefault(topic, []).append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=item.transactional_id,
        producer_id=item.producer_id,
        producer_epoch=item.producer_epoch,
        verify_only=not item.adds,
        topics=[
            AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in topics.items()
        ],
    )


def _errors(result: AddPartitionsToTxnResult) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, one.partition_index): ErrorCode(one.partition_error_code)
        for topic in result.topic_results
        for one in topic.results_by_partition
    }
