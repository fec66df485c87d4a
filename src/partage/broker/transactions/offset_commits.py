"""TxnOffsetCommit: the transaction coordinator admits the group, then the group decides."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from partage.bridge.api_adapter import BrokerContext, deliver
from partage.bridge.txn_offset_commit import TXN_OFFSET_COMMIT_ADAPTER
from partage.broker.coordination.group_coordinator import GroupCoordinator
from partage.broker.net.inbound_request import Handler, InboundRequest
from partage.broker.transactions.participation import TransactionParticipation
from partage.coordinator.events import Request
from partage.coordinator.unavailable_replies import error_reply
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.store.shard_log import TOPIC, shard_of
from partage.wire.apis.txn_offset_commit import TxnOffsetCommitRequest

#: From this version on, the broker adds the group to the transaction (KIP-890).
_ADDING_VERSION: Final = 5
#: From this version on, clients know TRANSACTION_ABORTABLE.
_ABORTABLE_VERSION: Final = 4


def txn_offset_commit_handler(
    coordinator: GroupCoordinator,
    participation: TransactionParticipation,
    broker_context: BrokerContext,
) -> Handler:
    """Return the handler of TxnOffsetCommit."""

    def handle(inbound: InboundRequest) -> None:
        events = inbound.start(TXN_OFFSET_COMMIT_ADAPTER, broker_context)
        request: TxnOffsetCommitRequest = inbound.message
        if not events or not request.group_id:
            coordinator.handle(inbound, events)  # it rejects the request
            return
        partition = TopicPartition(TOPIC, shard_of(request.group_id, coordinator.shard_count))
        participation.admit(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [partition],
            adds=inbound.version >= _ADDING_VERSION,
            done=partial(_on_admitted, coordinator, inbound, events[0], partition),
        )

    return handle


def _on_admitted(
    coordinator: GroupCoordinator,
    inbound: InboundRequest,
    event: Request,
    partition: TopicPartition,
    errors: Mapping[TopicPartition, ErrorCode],
) -> None:
    error = _shown_error(errors[partition], inbound.version)
    if error is ErrorCode.NONE:
        coordinator.handle(inbound, [event])
        return
    deliver(event.reply_to, error_reply(event, error))
    inbound.respond_encoded(inbound.encode_response())


def _shown_error(error: ErrorCode, version: int) -> ErrorCode:
    """Return the error as Kafka shows it to a client of this version (KIP-890)."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    return error
