"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from partage.broker.apis.fetch import READ_COMMITTED, leader_epoch_error
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.log_reader import LogReader
from partage.broker.topics.partition import Partition
from partage.log.results import Refusal
from partage.log.segments.timestamp_lookup import TimestampAndOffset, TimestampLookup
from partage.model.errors import ErrorCode
from partage.wire.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from partage.wire.apis.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResult,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResult,
)
from partage.wire.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderPartitionResult,
    OffsetForLeaderTopicResult,
)

log = logging.getLogger(__name__)

_LEADER_EPOCH = 0
#: First version of ListOffsets that knows each special timestamp. Other negative values are
#: invalid.
_VERSION_MIN: Final = {
    EARLIEST: 1,
    LATEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
}
_NO_VERSION: Final = 1 << 15


class _PendingLookup(NamedTuple):
    """A timestamp to look up (None for the largest one) and the result to fill in."""

    partition: Partition
    timestamp_ms: int | None
    result: ListOffsetsPartitionResult
    end_offset: int  # a record from this offset on does not count

    def lookup(self) -> TimestampLookup:
        return self.partition.log.timestamp_lookup(self.timestamp_ms)


async def list_offsets(inbound: InboundRequest, log_manager: LogManager, reads: LogReader) -> None:
    """Respond with the start or end offset of partitions, or with an offset by timestamp."""
    request: ListOffsetsRequest = inbound.message
    partitions = [
        (topic.name, p.partition_index) for topic in request.topics for p in topic.partitions
    ]
    times_asked = Counter(partitions)
    sought: list[_PendingLookup] = []

    def listed(topic: str, requested: ListOffsetsPartition) -> ListOffsetsPartitionResult:
        # As in Kafka. It also limits the work: 100,000 lookups in one partition would take very
        # long.
        if times_asked[topic, requested.partition_index] > 1:
            return _result(requested, ErrorCode.INVALID_REQUEST)
        if requested.timestamp_ms < 0 and inbound.version < _VERSION_MIN.get(
            requested.timestamp_ms, _NO_VERSION
        ):
            return _result(requested, ErrorCode.UNSUPPORTED_VERSION)
        partition = log_manager.partition(topic, requested.partition_index)
        if partition is None:
            return _result(
                requested, log_manager.missing_partition_error(topic, requested.partition_index)
            )
        error = _partition_error(partition, requested.current_leader_epoch)
        if error:
            return _result(requested, error)
        is_committed = request.isolation_level == READ_COMMITTED
        end = partition.log.last_stable_offset if is_committed else partition.log.high_watermark
        known = _known_offset(partition, requested.timestamp_ms, end)
        result = _result(requested, ErrorCode.NONE, -1 if known is None else known)
        if known is None:
            is_largest = requested.timestamp_ms == MAX_TIMESTAMP
            timestamp_ms = None if is_largest else requested.timestamp_ms
            sought.append(_PendingLookup(partition, timestamp_ms, result, end))
        return result

    response = ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResult(
                name=topic.name, partitions=[listed(topic.name, p) for p in topic.partitions]
            )
            for topic in request.topics
        ]
    )
    # A segment may be removed or compacted during the lookup: look up those timestamps once more.
    for is_last in (False, True):
        sought = await _look_up(sought, reads, is_last=is_last)
    inbound.respond(response)


async def _look_up(
    sought: list[_PendingLookup], reads: LogReader, *, is_last: bool
) -> list[_PendingLookup]:
    """Fill in the results of lookups; return the lookups to repeat."""
    again = []
    found = await reads.look_up_timestamps([one.lookup() for one in sought]) if sought else []
    for one, at in zip(sought, found, strict=True):
        if isinstance(at, TimestampAndOffset):
            if at.offset >= one.end_offset:
                continue
            one.result.offset, one.result.timestamp_ms = at
            one.result.leader_epoch = _LEADER_EPOCH
        elif at is not None and not is_last:
            again.append(one)
        elif at is not None:
            log.error("offset lookup failed: partition=%s error=%s", one.partition.name, at)
            one.result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return again


def _result(
    requested: ListOffsetsPartition, error: ErrorCode, offset: int = -1
) -> ListOffsetsPartitionResult:
    return ListOffsetsPartitionResult(
        partition_index=requested.partition_index,
        error_code=error,
        offset=offset,
        leader_epoch=-1 if offset < 0 else _LEADER_EPOCH,
    )


def _known_offset(partition: Partition, timestamp_ms: int, end_offset: int) -> int | None:
    """Return the offset for a special timestamp, or None if a lookup is necessary."""
    if timestamp_ms == LATEST:
        return end_offset
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        return partition.log.log_start_offset
    if timestamp_ms == LATEST_TIERED:
        return -1  # tiered storage does not exist here
    return None


def _partition_error(partition: Partition, claimed_epoch: int) -> ErrorCode:
    return partition.error or leader_epoch_error(claimed_epoch)


def offset_for_leader_epoch(inbound: InboundRequest, log_manager: LogManager) -> None:
    """Respond with the end offset of a leader epoch; the only epoch here is 0."""
    request: OffsetForLeaderEpochRequest = inbound.message
    inbound.respond(
        OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[
                        _epoch_end_result(topic.topic, p, log_manager) for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
    )


def _epoch_end_result(
    topic: str, requested: OffsetForLeaderPartition, log_manager: LogManager
) -> OffsetForLeaderPartitionResult:
    partition = log_manager.partition(topic, requested.partition)
    if partition is None:
        error = log_manager.missing_partition_error(topic, requested.partition)
    else:
        error = _partition_error(partition, requested.current_leader_epoch)
    result = OffsetForLeaderPartitionResult(error_code=error, partition=requested.partition)
    if partition is not None and not error:
        end = partition.log.end_offset_for_epoch(requested.leader_epoch)
        result.leader_epoch, result.end_offset = end.leader_epoch, end.end_offset
    return result


def delete_records(inbound: InboundRequest, log_manager: LogManager) -> None:
    """Delete the records before an offset, and respond once the deletion is durable."""
    _DeleteRecordsHandler(inbound, log_manager).run()


class _DeleteRecordsHandler:
    """One DeleteRecords request, until all its partitions are done."""

    def __init__(self, inbound: InboundRequest, log_manager: LogManager) -> None:
        self._inbound = inbound
        self._log_manager = log_manager
        self._pending_count = 1

    def run(self) -> None:
        request: DeleteRecordsRequest = self._inbound.message
        # Each partition once, even if it is named often: the last offset counts.
        topics: dict[str, dict[int, DeleteRecordsPartition]] = {}
        for topic in request.topics:
            by_index = {p.partition_index: p for p in topic.partitions}
            topics.setdefault(topic.name, {}).update(by_index)
        self._response = DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name=name, partitions=[self._delete(name, p) for p in partitions.values()]
                )
                for name, partitions in topics.items()
            ]
        )
        self._complete_one()

    def _delete(
        self, topic: str, requested: DeleteRecordsPartition
    ) -> DeleteRecordsPartitionResult:
        result = DeleteRecordsPartitionResult(
            partition_index=requested.partition_index, low_watermark=-1, error_code=ErrorCode.NONE
        )
        partition = self._log_manager.partition(topic, requested.partition_index)
        if partition is None:
            result.error_code = self._log_manager.missing_partition_error(
                topic, requested.partition_index
            )
        else:
            result.error_code = _partition_error(partition, -1)
        if self._log_manager.is_internal(topic):
            result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
        if partition is None or result.error_code:
            return result
        step = partition.log.delete_records(requested.offset)
        if isinstance(step, Refusal):
            result.error_code = step.code
            return result
        self._pending_count += 1
        result.low_watermark = partition.log.log_start_offset
        self._log_manager.submit_step(step, self._done(result))
        return result

    def _done(self, result: DeleteRecordsPartitionResult) -> Callable[[OSError | None], None]:
        def done(error: OSError | None) -> None:
            if error is not None:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                result.low_watermark = -1
            self._complete_one()

        return done

    def _complete_one(self) -> None:
        self._pending_count -= 1
        if not self._pending_count:
            self._inbound.respond(self._response)
