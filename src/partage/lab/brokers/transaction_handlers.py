"""The transaction coordinator of a world's broker, and the handlers of its requests.

They correspond to `partage.broker.transactions` and to the handlers in `partage.broker.apis`. The
decisions are those of production: `partage.transactions`, `partage.runtime.transaction_admission`
and `partage.runtime.offset_admission`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from partage.bridge.api_adapter import BrokerContext, deliver
from partage.bridge.txn_offset_commit import TXN_OFFSET_COMMIT_ADAPTER
from partage.coordinator.unavailable_replies import error_reply
from partage.lab.brokers.cluster_directory import ClusterDirectory
from partage.lab.brokers.log_maintenance import LogMaintenance
from partage.lab.brokers.marker_writer import SimLocalMarkers
from partage.lab.brokers.peer_requests import PeerRequests
from partage.lab.brokers.server_connection import ServedRequest
from partage.lab.brokers.shell import BrokerShell
from partage.lab.brokers.storage import HostedPartition
from partage.lab.brokers.transaction_host import SimReplyTicket, SimTransactionHost
from partage.lab.options import REQUEST_TIMEOUT_MS
from partage.log.producer_state import VerificationGuard
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.runtime.offset_admission import OffsetAdmission
from partage.runtime.transaction_admission import (
    TransactionalBatches,
    admit_batches,
    transactional_header,
)
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.store.shard_log import shard_of
from partage.transactions.events import (
    VERSION_0,
    VERSION_2,
    AddPartitions,
    EndTransaction,
    InitProducer,
    VerifyPartitions,
)
from partage.transactions.replies import PartitionsReply, ProducerReply
from partage.transactions.transaction import LAST_CLIENT_EPOCH
from partage.wire.apis.add_offsets_to_txn import ADD_OFFSETS_TO_TXN, AddOffsetsToTxnResponse
from partage.wire.apis.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from partage.wire.apis.end_txn import END_TXN, EndTxnResponse
from partage.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdResponse
from partage.wire.apis.produce import (
    PRODUCE,
    ProducePartitionResult,
    ProduceResponse,
    ProduceTopicResult,
)
from partage.wire.apis.txn_offset_commit import TXN_OFFSET_COMMIT
from partage.wire.apis.write_txn_markers import WRITE_TXN_MARKERS

_INIT_FENCED_VERSION: Final = 4
_FENCED_VERSION: Final = 2
_NEW_EPOCH_VERSION: Final = 5
#: The first version of AddPartitionsToTxn that brokers send, and the one that they use.
_BATCHED_VERSION: Final = 4
_BROKER_VERSION: Final = 5

#: Less and more than the request timeout of clients.
_ADMISSION_DELAYS_MS: Final = (0, 0, 0, 200, 1_500, REQUEST_TIMEOUT_MS + 2_500)

PartitionErrors = Mapping[TopicPartition, ErrorCode]


class TransactionHandlers:
    """Handles the requests of transactional producers; it implements `TransactionParticipation`."""

    def __init__(
        self,
        broker: BrokerShell,
        hosts: Sequence[SimTransactionHost],
        directory: ClusterDirectory,
        peers: PeerRequests,
        local_markers: SimLocalMarkers,
        maintenance: LogMaintenance,
        surroundings: BrokerContext,
    ) -> None:
        self._broker = broker
        self._world = broker.world
        self._hosts = hosts
        self._directory = directory
        self._peers = peers
        self._maintenance = maintenance
        self._surroundings = surroundings
        self._handlers: dict[int, Callable[[ServedRequest], None]] = {
            INIT_PRODUCER_ID.key: self._init,
            ADD_PARTITIONS_TO_TXN.key: self._add_partitions,
            ADD_OFFSETS_TO_TXN.key: self._add_offsets,
            TXN_OFFSET_COMMIT.key: self._commit_offsets,
            END_TXN.key: self._end,
            WRITE_TXN_MARKERS.key: local_markers.handle,
        }

    def handle(self, inbound: ServedRequest) -> bool:
        """Handle a request. Return False if it does not concern transactions."""
        key = inbound.api.key
        if key == PRODUCE.key and inbound.message.transactional_id is not None:
            _Produce(self._broker, self._maintenance, self, inbound).run()
        elif key in self._handlers:
            self._handlers[key](inbound)
        else:
            return False
        return True

    # Coordinator

    def _host_of(self, transactional_id: str) -> SimTransactionHost:
        return self._hosts[shard_of(transactional_id, len(self._hosts))]

    def _init(self, inbound: ServedRequest) -> None:
        request = inbound.message

        def done(reply: ProducerReply) -> None:
            inbound.respond(
                InitProducerIdResponse(
                    error_code=_shown_error(reply.error, inbound, _INIT_FENCED_VERSION),
                    producer_id=reply.producer_id,
                    producer_epoch=reply.epoch,
                )
            )

        self._host_of(request.transactional_id).handle(
            InitProducer(
                at_ms=self._world.now_ms,
                reply_to=SimReplyTicket(done),
                transactional_id=request.transactional_id,
                timeout_ms=request.transaction_timeout_ms,
                producer_id=request.producer_id,
                epoch=request.producer_epoch,
                fresh_producer_id=self._world.next_producer_id(),
            )
        )

    def _add_partitions(self, inbound: ServedRequest) -> None:
        request = inbound.message
        if inbound.version >= _BATCHED_VERSION:
            self._add_of_brokers(inbound)
            return
        topics = request.v3_and_below_topics

        def done(errors: PartitionErrors) -> None:
            inbound.respond(
                AddPartitionsToTxnResponse(
                    results_by_topic_v3_and_below=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=index,
                                    partition_error_code=_shown_error(
                                        errors[TopicPartition(topic.name, index)], inbound
                                    ),
                                )
                                for index in topic.partitions
                            ],
                        )
                        for topic in topics
                    ]
                )
            )

        self._add(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions],
            VERSION_0,
            done,
        )

    def _add_offsets(self, inbound: ServedRequest) -> None:
        request = inbound.message
        offsets = self._offsets_partition(request.group_id)

        def done(errors: PartitionErrors) -> None:
            error = _shown_error(errors[offsets], inbound)
            inbound.respond(AddOffsetsToTxnResponse(error_code=error))

        self._add(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [offsets],
            VERSION_0,
            done,
        )

    def _offsets_partition(self, group_id: str) -> TopicPartition:
        return TopicPartition(OFFSETS_TOPIC, self._world.shard_of(group_id))

    def _add_of_brokers(self, inbound: ServedRequest) -> None:
        """Handle the AddPartitionsToTxn of a leader (KIP-890)."""
        results: list[AddPartitionsToTxnResult] = []
        pending = len(inbound.message.transactions)

        def complete_one(
            transaction: AddPartitionsToTxnTransaction, errors: PartitionErrors
        ) -> None:
            nonlocal pending
            results.append(_transaction_result(transaction, errors))
            pending -= 1
            if not pending:
                inbound.respond(AddPartitionsToTxnResponse(results_by_transaction=results))

        for transaction in inbound.message.transactions:
            self._admit_here(
                transaction.transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                _partitions_of(transaction),
                adds=not transaction.verify_only,
                done=partial(complete_one, transaction),
            )

    def _add(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        version: int,
        done: Callable[[PartitionErrors], None],
    ) -> None:
        self._host_of(transactional_id).handle(
            AddPartitions(
                at_ms=self._world.now_ms,
                reply_to=_partitions_ticket(partitions, done),
                transactional_id=transactional_id,
                producer_id=producer_id,
                epoch=epoch,
                partitions=tuple(partitions),
                version=version,
            )
        )

    def admit(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        done: Callable[[PartitionErrors], None],
    ) -> None:
        """Check that partitions belong to the open transaction, or add them to it.

        The coordinator is this broker or another one.
        """
        done = self._delayed(done)
        coordinator = self._directory.transaction_coordinator(transactional_id)
        if coordinator == self._directory.broker_id:
            self._admit_here(
                transactional_id, producer_id, producer_epoch, partitions, adds=adds, done=done
            )
            return
        failed = dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if coordinator is None:
            self._broker.call_later(0, lambda: done(failed))
            return
        by_topic: dict[str, list[int]] = {}
        for topic, index in partitions:
            by_topic.setdefault(topic, []).append(index)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=not adds,
            topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in by_topic.items()
            ],
        )

        def on_response(response: AddPartitionsToTxnResponse | None) -> None:
            if response is None or response.error_code:
                done(failed)
            else:
                done(_errors_of(response.results_by_transaction[0]))

        request = AddPartitionsToTxnRequest(transactions=[transaction])
        self._peers.send(coordinator, ADD_PARTITIONS_TO_TXN, _BROKER_VERSION, request, on_response)

    def _delayed(
        self, done: Callable[[PartitionErrors], None]
    ) -> Callable[[PartitionErrors], None]:
        """Delay the result of an admission while admissions are slow."""
        world = self._world
        if world.is_healed or world.now_ms >= world.slow_admissions_until_ms:
            return done
        delay_ms = world.broker_rng.choice(_ADMISSION_DELAYS_MS)
        return lambda errors: self._broker.call_later(delay_ms, lambda: done(errors))

    def _admit_here(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        done: Callable[[PartitionErrors], None],
    ) -> None:
        if adds:
            self._add(transactional_id, producer_id, producer_epoch, partitions, VERSION_2, done)
            return
        self._host_of(transactional_id).handle(
            VerifyPartitions(
                at_ms=self._world.now_ms,
                reply_to=_partitions_ticket(partitions, done),
                transactional_id=transactional_id,
                producer_id=producer_id,
                epoch=producer_epoch,
                partitions=tuple(partitions),
            )
        )

    def _end(self, inbound: ServedRequest) -> None:
        request = inbound.message
        is_exhausted = request.producer_epoch >= LAST_CLIENT_EPOCH

        def done(reply: ProducerReply) -> None:
            inbound.respond(
                EndTxnResponse(
                    error_code=_shown_error(reply.error, inbound),
                    producer_id=reply.producer_id,
                    producer_epoch=reply.epoch,
                )
            )

        self._host_of(request.transactional_id).handle(
            EndTransaction(
                at_ms=self._world.now_ms,
                reply_to=SimReplyTicket(done),
                transactional_id=request.transactional_id,
                producer_id=request.producer_id,
                epoch=request.producer_epoch,
                is_commit=request.committed,
                version=VERSION_2 if inbound.version >= _NEW_EPOCH_VERSION else VERSION_0,
                fresh_producer_id=self._world.next_producer_id() if is_exhausted else -1,
            )
        )

    # Offsets

    def _commit_offsets(self, inbound: ServedRequest) -> None:
        request = inbound.message
        (event,) = inbound.start(TXN_OFFSET_COMMIT_ADAPTER, self._surroundings)
        where = self._offsets_partition(request.group_id)
        host = self._directory.group_host(where.partition)
        if host.shard is None:  # it rejects the request
            host.handle(event)
            host.flush()
            return
        producers = host.producer_state
        admission = OffsetAdmission(request, inbound.version, inbound.at_ms, producers)

        def reject(error: ErrorCode) -> None:
            deliver(event.reply_to, error_reply(event, error))
            inbound.connection.respond(inbound, inbound.encode_response())

        def on_admitted(errors: PartitionErrors) -> None:
            error = admission.decide(errors[where])
            if host.shard is not None and host.producer_state is not producers:
                # The shard was loaded again meanwhile, so a marker may have been missed.
                error = error or ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            if error:
                reject(error)
                return
            (admitted,) = inbound.start(TXN_OFFSET_COMMIT_ADAPTER, self._surroundings)
            host.handle(admitted)
            host.flush()

        if admission.is_fenced():
            reject(ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        self.admit(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [where],
            adds=admission.adds,
            done=on_admitted,
        )


def _partitions_of(transaction: AddPartitionsToTxnTransaction) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index)
        for topic in transaction.topics
        for index in topic.partitions
    ]


def _transaction_result(
    transaction: AddPartitionsToTxnTransaction, errors: PartitionErrors
) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=errors[TopicPartition(topic.name, index)],
                    )
                    for index in topic.partitions
                ],
            )
            for topic in transaction.topics
        ],
    )


def _errors_of(result: AddPartitionsToTxnResult) -> PartitionErrors:
    return {
        TopicPartition(topic.name, one.partition_index): ErrorCode(one.partition_error_code)
        for topic in result.topic_results
        for one in topic.results_by_partition
    }


def _partitions_ticket(
    partitions: Sequence[TopicPartition], done: Callable[[PartitionErrors], None]
) -> SimReplyTicket:
    def on_reply(reply: PartitionsReply) -> None:
        done(dict(zip(partitions, reply.errors, strict=True)))

    return SimReplyTicket(on_reply)


def _shown_error(
    error: ErrorCode, inbound: ServedRequest, fenced_version: int = _FENCED_VERSION
) -> ErrorCode:
    """Return the error as a client of this version knows it."""
    if error is ErrorCode.PRODUCER_FENCED and inbound.version < fenced_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


class _Produce:
    """A Produce request with transactional batches, until they are durable or refused."""

    def __init__(
        self,
        broker: BrokerShell,
        maintenance: LogMaintenance,
        participation: TransactionHandlers,
        inbound: ServedRequest,
    ) -> None:
        self.broker = broker
        self.maintenance = maintenance
        self._participation = participation
        self._inbound = inbound
        self._pending_count = 0
        self._results: list[tuple[str, ProducePartitionResult]] = []

    def run(self) -> None:
        """Admit and append the batches; respond when they are durable."""
        assert self.broker.storage is not None, "the process has no disk"
        waiting = []
        for topic in self._inbound.message.topic_data:
            for wanted in topic.partition_data:
                result = ProducePartitionResult(index=wanted.index, error_code=0, base_offset=-1)
                self._results.append((topic.name, result))
                payload = bytes(wanted.records[0])
                header = transactional_header(payload)
                assert header is not None, "producers of a world send transactional batches"
                place = TopicPartition(topic.name, wanted.index)
                partition = self.broker.storage.partitions[place]
                waiting.append((_PartitionAppend(self, place, partition, payload, result), header))
        self._pending_count = len(waiting)
        first = waiting[0][1]
        admit_batches(
            TransactionalBatches(
                self._inbound.message.transactional_id,
                first.producer_id,
                first.producer_epoch,
                self._inbound.version,
                self.broker.world.now_ms,
            ),
            waiting,
            self._participation,
            is_verification_enabled=True,
        )

    def complete_one(self) -> None:
        """Respond if all partitions are complete."""
        self._pending_count -= 1
        if self._pending_count:
            return
        self._inbound.respond(
            ProduceResponse(
                responses=[
                    ProduceTopicResult(name=topic, partition_responses=[result])
                    for topic, result in self._results
                ]
            )
        )


class _PartitionAppend:
    """The batch of a request for one partition."""

    def __init__(
        self,
        request: _Produce,
        place: TopicPartition,
        partition: HostedPartition,
        payload: bytes,
        result: ProducePartitionResult,
    ) -> None:
        self.topic_partition = place
        self.partition = partition
        self._request = request
        self._payload = payload
        self._result = result

    def append(self, guard: VerificationGuard | None) -> None:
        """Append the batch; complete when it is durable or refused."""
        broker = self._request.broker
        outcome = self.partition.append(
            self._payload,
            lambda error: broker.when_awake(lambda: self._on_durable(error)),
            at_ms=broker.world.now_ms,
            guard=guard,
        )
        if isinstance(outcome, Refusal):
            self.refuse(outcome)
        else:
            self._result.base_offset = outcome.base_offset

    def refuse(self, refusal: Refusal) -> None:
        """Complete with an error."""
        self._result.error_code = refusal.code
        self._request.complete_one()

    def _on_durable(self, error: ErrorCode) -> None:
        request = self._request
        if request.broker.storage is None:
            return
        if error:
            self._result.error_code = error
            self._result.base_offset = -1
            request.maintenance.schedule_reopen(*self.topic_partition)
        request.complete_one()
