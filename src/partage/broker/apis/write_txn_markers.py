"""WriteTxnMarkers: end transactions on partitions, and respond once the markers are durable."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from partage.broker.net.inbound_request import InboundRequest
from partage.broker.topics.log_manager import LogManager
from partage.broker.transactions.marker_writer import OffsetMarkers
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.wire.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_Results = dict[int, dict[str, dict[int, ErrorCode]]]  # by producer, topic and partition


def write_txn_markers(
    inbound: InboundRequest, log_manager: LogManager, offset_markers: OffsetMarkers
) -> None:
    """Write the markers of a request.

    Args:
        inbound: the request.
        log_manager: the topics and partitions of this broker.
        offset_markers: writes the markers of ``__consumer_offsets``.
    """
    _WriteTxnMarkersHandler(inbound, log_manager, offset_markers).run()


class _WriteTxnMarkersHandler:
    """One request, until its markers are durable."""

    def __init__(
        self, inbound: InboundRequest, log_manager: LogManager, offset_markers: OffsetMarkers
    ) -> None:
        self._inbound = inbound
        self._log_manager = log_manager
        self._offset_markers = offset_markers
        self._results: _Results = {}
        self._pending_count = 1

    def run(self) -> None:
        """Append all markers; respond when they are durable."""
        request: WriteTxnMarkersRequest = self._inbound.message
        for marker in request.markers:
            topics = self._results.setdefault(marker.producer_id, {})
            for topic in marker.topics:
                errors = topics.setdefault(topic.name, {})
                for index in dict.fromkeys(topic.partition_indexes):
                    self._pending_count += 1
                    done = partial(self._finish, errors, index)
                    self._append(marker, topic.name, index, done)
        self._complete_one()

    def _append(
        self, marker: WritableTxnMarker, topic: str, index: int, done: Callable[[ErrorCode], None]
    ) -> None:
        partition = self._log_manager.partition(topic, index)
        if partition is None:
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        if topic == OFFSETS_TOPIC:
            # The group coordinator does not check the epochs.
            refusal = partition.log.producer_state.check_marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                marker.transaction_version,
            )
            if refusal is not None:
                done(refusal.code)
                return
            self._offset_markers.complete_transaction(
                index,
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                is_commit=marker.transaction_result,
                done=done,
            )
            return
        outcome = partition.append_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            is_commit=marker.transaction_result,
            transaction_version=marker.transaction_version,
            at_ms=self._log_manager.wall_ms(),
            done=done,
        )
        if isinstance(outcome, Refusal):
            done(outcome.code)

    def _finish(self, errors: dict[int, ErrorCode], index: int, error: ErrorCode) -> None:
        errors[index] = error
        self._complete_one()

    def _complete_one(self) -> None:
        self._pending_count -= 1
        if self._pending_count:
            return
        self._inbound.respond(
            WriteTxnMarkersResponse(
                markers=[
                    WritableTxnMarkerResult(
                        producer_id=producer_id,
                        topics=[_topic_result(name, errors) for name, errors in topics.items()],
                    )
                    for producer_id, topics in self._results.items()
                ]
            )
        )


def _topic_result(name: str, errors: dict[int, ErrorCode]) -> WritableTxnMarkerTopicResult:
    return WritableTxnMarkerTopicResult(
        name=name,
        partitions=[
            WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
            for index, error in errors.items()
        ],
    )
