"""InitProducerId, and the APIs of transactional producers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from partage.broker.apis.loop_turns import run_in_turns
from partage.broker.net.inbound_request import Handler, InboundRequest
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.producer_ids import ProducerIdManager
from partage.broker.transactions.transaction_coordinator import TransactionCoordinator
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.store.shard_log import find_shard
from partage.transactions.events import VERSION_0, VERSION_2
from partage.transactions.replies import ProducerReply
from partage.wire.apis.add_offsets_to_txn import (
    ADD_OFFSETS_TO_TXN,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from partage.wire.apis.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from partage.wire.apis.end_txn import END_TXN, EndTxnRequest, EndTxnResponse
from partage.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

#: The first version with PRODUCER_FENCED (KIP-588); earlier ones have INVALID_PRODUCER_EPOCH.
_INIT_FENCED_VERSION: Final = 4
_FENCED_VERSION: Final = 2
#: From this version on, AddPartitionsToTxn has several transactions, for requests of brokers.
_SEVERAL_VERSION: Final = 4
#: From this version on, EndTxn has a new epoch for the next transaction (KIP-890).
_NEW_EPOCH_VERSION: Final = 5
_PARTITIONS_PER_TURN: Final = 256

PartitionErrors = Mapping[TopicPartition, ErrorCode]


def init_producer_id(
    inbound: InboundRequest, ids: ProducerIdManager, coordinator: TransactionCoordinator
) -> None:
    """Respond with a producer id and its epoch.

    Args:
        inbound: the request.
        ids: allocates the ids of producers without transactions.
        coordinator: the transaction coordinator.
    """
    request: InitProducerIdRequest = inbound.message
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        _respond_init(inbound, ProducerReply(error=ErrorCode.INVALID_REQUEST))
    elif request.transactional_id is None:
        _respond_init(inbound, ProducerReply(producer_id=ids.next_id(), epoch=0))
    elif not request.transactional_id:
        _respond_init(inbound, ProducerReply(error=ErrorCode.INVALID_REQUEST))
    else:
        coordinator.init_producer(
            request.transactional_id,
            request.transaction_timeout_ms,
            request.producer_id,
            request.producer_epoch,
            partial(_respond_init, inbound),
        )


def _respond_init(inbound: InboundRequest, reply: ProducerReply) -> None:
    inbound.respond(
        InitProducerIdResponse(
            error_code=_shown_error(reply.error, inbound, _INIT_FENCED_VERSION),
            producer_id=reply.producer_id,
            producer_epoch=reply.epoch,
        )
    )


def _shown_error(
    error: ErrorCode, inbound: InboundRequest, fenced_version: int = _FENCED_VERSION
) -> ErrorCode:
    """Return the error as a client of this version knows it."""
    if error is ErrorCode.PRODUCER_FENCED and inbound.version < fenced_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def transaction_handlers(
    coordinator: TransactionCoordinator, log_manager: LogManager, group_shard_count: int
) -> dict[int, Handler]:
    """Return the handlers of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn.

    Args:
        coordinator: the transaction coordinator.
        log_manager: knows which partitions exist.
        group_shard_count: the number of partitions of ``__consumer_offsets``.
    """
    return {
        ADD_PARTITIONS_TO_TXN.key: lambda inbound: _AddPartitions(
            inbound, coordinator, log_manager, group_shard_count
        ).run(),
        ADD_OFFSETS_TO_TXN.key: lambda inbound: _add_offsets(
            inbound, coordinator, group_shard_count
        ),
        END_TXN.key: lambda inbound: _end(inbound, coordinator),
    }


class _AddPartitions:
    """An AddPartitionsToTxn request, until all its transactions have results."""

    def __init__(
        self,
        inbound: InboundRequest,
        coordinator: TransactionCoordinator,
        log_manager: LogManager,
        group_shard_count: int,
    ) -> None:
        self._inbound = inbound
        self._coordinator = coordinator
        self._log_manager = log_manager
        self._group_shard_count = group_shard_count
        self._transactions = _transactions_of(inbound)
        self._errors: list[PartitionErrors | None] = [None] * len(self._transactions)
        self._missing_count = len(self._transactions)

    def run(self) -> None:
        """Hand each transaction to the coordinator."""
        if self._transactions:
            run_in_turns(self._add_all(), _PARTITIONS_PER_TURN)
        else:
            self._respond()

    def _add_all(self) -> Iterator[None]:
        for position, transaction in enumerate(self._transactions):
            yield from self._add(transaction, partial(self._on_result, position))

    def _add(
        self, transaction: AddPartitionsToTxnTransaction, done: Callable[[PartitionErrors], None]
    ) -> Iterator[None]:
        """Hand a transaction to the coordinator; yield after each of its partitions."""
        partitions = dict[TopicPartition, None]()  # without repetitions
        failed = dict[TopicPartition, ErrorCode]()
        for topic in transaction.topics:
            for index in topic.partitions:
                where = TopicPartition(topic.name, index)
                partitions[where] = None
                if error := self._refusal(where):
                    failed[where] = error
                yield
        identity = (
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
        )
        if not transaction.transactional_id:
            done(dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST))
        elif failed:
            done(dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | failed)
        elif transaction.verify_only:
            self._coordinator.verify_partitions(*identity, list(partitions), done)
        else:
            is_newer = self._inbound.version >= _SEVERAL_VERSION
            version = VERSION_2 if is_newer else VERSION_0
            self._coordinator.add_partitions(
                *identity, list(partitions), version, done, may_wait=not is_newer
            )
        yield

    def _refusal(self, where: TopicPartition) -> ErrorCode:
        """Return the error of a partition that cannot be added, otherwise NONE.

        A client adds offsets with AddOffsetsToTxn; only brokers name internal topics.
        """
        is_client = self._inbound.version < _SEVERAL_VERSION
        if is_client and self._log_manager.is_internal(where.topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if where.topic == OFFSETS_TOPIC:
            exists = 0 <= where.partition < self._group_shard_count
        else:
            exists = self._log_manager.has_partition(*where)
        return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _on_result(self, position: int, errors: PartitionErrors) -> None:
        self._errors[position] = errors
        self._missing_count -= 1
        if not self._missing_count:
            self._respond()

    def _respond(self) -> None:
        run_in_turns(self._build_response(), _PARTITIONS_PER_TURN)

    def _build_response(self) -> Iterator[None]:
        """Respond; yield after each topic and each partition."""
        results = list[AddPartitionsToTxnResult]()
        for transaction, errors in zip(self._transactions, self._errors, strict=True):
            topics = list[AddPartitionsToTxnTopicResult]()
            for topic in transaction.topics:
                partitions = list[AddPartitionsToTxnPartitionResult]()
                for index in topic.partitions:
                    partitions.append(self._result(topic.name, index, errors or {}))
                    yield
                topics.append(
                    AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=partitions)
                )
                yield
            results.append(
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id, topic_results=topics
                )
            )
        if self._inbound.version < _SEVERAL_VERSION:
            first = results[0].topic_results
            response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=first)
        else:
            response = AddPartitionsToTxnResponse(results_by_transaction=results)
        self._inbound.respond(response)

    def _result(
        self, topic: str, index: int, errors: PartitionErrors
    ) -> AddPartitionsToTxnPartitionResult:
        error = errors[TopicPartition(topic, index)]
        return AddPartitionsToTxnPartitionResult(
            partition_index=index, partition_error_code=_shown_error(error, self._inbound)
        )


def _transactions_of(inbound: InboundRequest) -> list[AddPartitionsToTxnTransaction]:
    request: AddPartitionsToTxnRequest = inbound.message
    if inbound.version >= _SEVERAL_VERSION:
        return request.transactions
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def _add_offsets(
    inbound: InboundRequest, coordinator: TransactionCoordinator, group_shard_count: int
) -> None:
    request: AddOffsetsToTxnRequest = inbound.message
    partition = TopicPartition(OFFSETS_TOPIC, find_shard(request.group_id, group_shard_count))

    def done(errors: PartitionErrors) -> None:
        error = _shown_error(errors[partition], inbound)
        inbound.respond(AddOffsetsToTxnResponse(error_code=error))

    coordinator.add_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [partition],
        VERSION_0,
        done,
    )


def _end(inbound: InboundRequest, coordinator: TransactionCoordinator) -> None:
    request: EndTxnRequest = inbound.message

    def done(reply: ProducerReply) -> None:
        inbound.respond(
            EndTxnResponse(
                error_code=_shown_error(reply.error, inbound),
                producer_id=reply.producer_id,
                producer_epoch=reply.epoch,
            )
        )

    coordinator.end_transaction(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        is_commit=request.committed,
        version=VERSION_2 if inbound.version >= _NEW_EPOCH_VERSION else VERSION_0,
        done=done,
    )
