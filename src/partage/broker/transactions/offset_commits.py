"""TxnOffsetCommit: the transaction coordinator admits the group, then the group decides."""

from __future__ import annotations

from collections.abc import Mapping

from partage.bridge.api_adapter import BrokerContext, deliver
from partage.bridge.txn_offset_commit import TXN_OFFSET_COMMIT_ADAPTER
from partage.broker.coordination.group_coordinator import GroupCoordinator
from partage.broker.net.inbound_request import Handler, InboundRequest
from partage.coordinator.events import Request
from partage.coordinator.unavailable_replies import error_reply
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.runtime.offset_admission import OffsetAdmission
from partage.runtime.transaction_participation import TransactionParticipation
from partage.store.shard_log import TOPIC, find_shard
from partage.wire.apis.txn_offset_commit import TxnOffsetCommitRequest


def txn_offset_commit_handler(
    coordinator: GroupCoordinator,
    participation: TransactionParticipation,
    broker_context: BrokerContext,
) -> Handler:
    """Return the handler of TxnOffsetCommit."""

    def handle(inbound: InboundRequest) -> None:
        events = inbound.start(TXN_OFFSET_COMMIT_ADAPTER, broker_context)
        request: TxnOffsetCommitRequest = inbound.message
        host = coordinator.host_of(request.group_id)
        if not events or not request.group_id or not host.is_loaded:
            coordinator.handle(inbound, events)  # it rejects the request
            return
        where = TopicPartition(TOPIC, find_shard(request.group_id, coordinator.shard_count))
        producers = host.producer_state
        admission = OffsetAdmission(request, inbound.version, inbound.at_ms, producers)
        if admission.is_fenced():
            _reject(inbound, events[0], ErrorCode.INVALID_PRODUCER_EPOCH)
            return

        def on_admitted(errors: Mapping[TopicPartition, ErrorCode]) -> None:
            error = admission.decide(errors[where])
            if host.is_loaded and host.producer_state is not producers:
                # The shard was loaded again meanwhile, so a marker may have been missed.
                error = error or ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            if error:
                _reject(inbound, events[0], error)
            else:  # a topic may have been deleted meanwhile
                coordinator.handle(
                    inbound, inbound.start(TXN_OFFSET_COMMIT_ADAPTER, broker_context)
                )

        participation.admit(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [where],
            adds=admission.adds,
            done=on_admitted,
        )

    return handle


def _reject(inbound: InboundRequest, event: Request, error: ErrorCode) -> None:
    """Respond with an error for each partition."""
    deliver(event.reply_to, error_reply(event, error))
    inbound.respond_with_replies()
