"""WriteTxnMarkers: end transactions on partitions, and respond once the markers are durable."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Final

from partage.broker.apis.loop_turns import run_in_turns
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.transactions.local_markers import MarkerSink, PartitionMarker
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

log = logging.getLogger(__name__)

_MARKERS_PER_TURN: Final = 128
_RESULTS_PER_TURN: Final = 256

_Results = dict[int, dict[str, dict[int, ErrorCode]]]  # by producer, topic and partition


def write_txn_markers(inbound: InboundRequest, markers: MarkerSink) -> None:
    """Write the markers of a request.

    Args:
        inbound: the request.
        markers: appends markers to the partitions and group shards of this broker.
    """
    _WriteTxnMarkersHandler(inbound, markers).run()


class _WriteTxnMarkersHandler:
    """One request, until its markers are durable."""

    def __init__(self, inbound: InboundRequest, markers: MarkerSink) -> None:
        self._inbound = inbound
        self._markers = markers
        self._loop = asyncio.get_running_loop()
        self._results: _Results = {}
        self._marker_count = 0
        self._pending: set[int] = set()  # numbers of the markers without a result
        self._is_all_appended = False

    def run(self) -> None:
        """Append all markers; respond when they are durable."""
        self._append_some(self._requested())

    def _requested(self) -> Iterator[tuple[PartitionMarker, TopicPartition]]:
        """Yield each marker; note the order of the results."""
        request: WriteTxnMarkersRequest = self._inbound.message
        for requested in request.markers:
            marker = PartitionMarker(
                requested.producer_id,
                requested.producer_epoch,
                requested.coordinator_epoch,
                requested.transaction_result,
                requested.transaction_version,
            )
            topics = self._results.setdefault(marker.producer_id, {})
            for topic in requested.topics:
                topics.setdefault(topic.name, {})
                for index in dict.fromkeys(topic.partition_indexes):
                    yield marker, TopicPartition(topic.name, index)

    def _append_some(self, requested: Iterator[tuple[PartitionMarker, TopicPartition]]) -> None:
        """Append as many markers as fit into one turn of the loop."""
        some = list(islice(requested, _MARKERS_PER_TURN))
        numbers = range(self._marker_count, self._marker_count + len(some))
        self._marker_count += len(some)
        self._pending.update(numbers)
        for number, (marker, where) in zip(numbers, some, strict=True):
            done = partial(self._finish, number, marker.producer_id, where)
            try:
                self._markers.append(marker, where, done)
            except Exception:  # a bug; the other markers must be reported nevertheless
                log.exception("append of a transaction marker failed: partition=%s", where)
                done(ErrorCode.UNKNOWN_SERVER_ERROR)
        if len(some) == _MARKERS_PER_TURN:
            self._loop.call_soon(self._append_some, requested)
        else:
            self._is_all_appended = True
            self._respond_if_complete()

    def _finish(
        self, number: int, producer_id: int, where: TopicPartition, error: ErrorCode
    ) -> None:
        if number not in self._pending:
            return  # it was reported before its append raised an exception
        self._pending.remove(number)
        self._results[producer_id][where.topic][where.partition] = error
        self._respond_if_complete()

    def _respond_if_complete(self) -> None:
        if self._pending or not self._is_all_appended:
            return
        run_in_turns(self._build_response(), _RESULTS_PER_TURN)

    def _build_response(self) -> Iterator[None]:
        """Respond; yield after each topic and each partition."""
        results = list[WritableTxnMarkerResult]()
        for producer_id, errors_of_topics in self._results.items():
            topics = list[WritableTxnMarkerTopicResult]()
            for name, errors in errors_of_topics.items():
                partitions = list[WritableTxnMarkerPartitionResult]()
                for index, error in errors.items():
                    partitions.append(
                        WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
                    )
                    yield
                topics.append(WritableTxnMarkerTopicResult(name=name, partitions=partitions))
                yield
            results.append(WritableTxnMarkerResult(producer_id=producer_id, topics=topics))
        self._inbound.respond(WriteTxnMarkersResponse(markers=results))
