"""TxnOffsetCommit: the transaction coordinator admits the group, then the group decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from partage.bridge.api_adapter import BrokerContext, deliver
from partage.bridge.txn_offset_commit import TXN_OFFSET_COMMIT_ADAPTER
from partage.broker.coordination.group_coordinator import GroupCoordinator
from partage.broker.net.inbound_request import Handler, InboundRequest
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.partition import Partition
from partage.broker.transactions.participation import TransactionParticipation
from partage.coordinator.events import Request
from partage.coordinator.unavailable_replies import error_reply
from partage.log.producer_state import VerificationGuard
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.store.shard_log import TOPIC, shard_of
from partage.wire.apis.txn_offset_commit import TxnOffsetCommitRequest

#: The base sequence of batches without sequences.
_NO_SEQUENCE: Final = -1
#: From this version on, the broker adds the group to the transaction (KIP-890).
_ADDING_VERSION: Final = 5
#: From this version on, clients know TRANSACTION_ABORTABLE.
_ABORTABLE_VERSION: Final = 4


def txn_offset_commit_handler(
    coordinator: GroupCoordinator,
    participation: TransactionParticipation,
    broker_context: BrokerContext,
    log_manager: LogManager,
) -> Handler:
    """Return the handler of TxnOffsetCommit."""

    def handle(inbound: InboundRequest) -> None:
        events = inbound.start(TXN_OFFSET_COMMIT_ADAPTER, broker_context)
        request: TxnOffsetCommitRequest = inbound.message
        if not events or not request.group_id:
            coordinator.handle(inbound, events)  # it rejects the request
            return
        where = TopicPartition(TOPIC, shard_of(request.group_id, coordinator.shard_count))
        partition = log_manager.partition(*where)
        assert partition is not None, f"{where} does not exist"
        commit = _OffsetCommit(inbound, events[0], partition)
        if commit.is_fenced():
            commit.reject(ErrorCode.INVALID_PRODUCER_EPOCH)
            return

        def on_admitted(errors: Mapping[TopicPartition, ErrorCode]) -> None:
            error = _shown_error(errors[where], inbound.version) or commit.late_error()
            if error:
                commit.reject(error)
            else:  # a topic may have been deleted meanwhile
                events = inbound.start(TXN_OFFSET_COMMIT_ADAPTER, broker_context)
                coordinator.handle(inbound, events)

        participation.admit(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [where],
            adds=commit.adds,
            done=on_admitted,
        )

    return handle


class _OffsetCommit:
    """A commit that waits for its admission.

    A marker may arrive meanwhile. Offsets that are written after it would belong to the producer's
    next transaction, so they are rejected.
    """

    def __init__(self, inbound: InboundRequest, event: Request, partition: Partition) -> None:
        self._inbound = inbound
        self._event = event
        self._partition = partition
        self.adds = inbound.version >= _ADDING_VERSION
        self._guard = self._verify()

    def _verify(self) -> VerificationGuard | Refusal | None:
        request: TxnOffsetCommitRequest = self._inbound.message
        return self._partition.log.producer_state.start_verification(
            request.producer_id,
            request.producer_epoch,
            _NO_SEQUENCE,
            raises_epochs=self.adds,
            at_ms=self._inbound.at_ms,
        )

    def is_fenced(self) -> bool:
        """True if a marker or a batch of a newer producer is in the log."""
        return isinstance(self._guard, Refusal)

    def late_error(self) -> ErrorCode:
        """Return the error if a marker has arrived since, otherwise NONE."""
        now = self._verify()
        if isinstance(now, Refusal):
            return now.code
        # None: the transaction is open in this partition, by an earlier commit.
        return ErrorCode.NONE if now in (None, self._guard) else ErrorCode.INVALID_TXN_STATE

    def reject(self, error: ErrorCode) -> None:
        """Respond with an error for each partition."""
        deliver(self._event.reply_to, error_reply(self._event, error))
        self._inbound.respond_encoded(self._inbound.encode_response())


def _shown_error(error: ErrorCode, version: int) -> ErrorCode:
    """Return the error as Kafka shows it to a client of this version (KIP-890)."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    return error
