"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: where a partition begins and ends."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from partage.broker.apis.fetch import epoch_error
from partage.broker.hosted import Hosted
from partage.broker.inbound import Inbound
from partage.broker.partition import Partition
from partage.broker.reads import Reads
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
#: The version since which each value is known that is no time; others below zero mean nothing.
_SINCE: Final = {EARLIEST: 1, LATEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
_NEVER: Final = 1 << 15


class _Sought(NamedTuple):
    """A time to be looked up, None for the largest, and the result that is to say where it is."""

    partition: Partition
    timestamp_ms: int | None
    result: ListOffsetsPartitionResult

    def search(self) -> TimestampLookup:
        return self.partition.log.timestamp_lookup(self.timestamp_ms)


async def list_offsets(inbound: Inbound, hosted: Hosted, reads: Reads) -> None:
    """Offsets by time, or one of the ends."""
    request: ListOffsetsRequest = inbound.message
    places = [(topic.name, p.partition_index) for topic in request.topics for p in topic.partitions]
    times_asked = Counter(places)
    sought: list[_Sought] = []

    def listed(topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResult:
        # As in Kafka, and a hundred thousand searches in one partition would take their time.
        if times_asked[topic, asked.partition_index] > 1:
            return _listed(asked, ErrorCode.INVALID_REQUEST)
        if asked.timestamp_ms < 0 and inbound.version < _SINCE.get(asked.timestamp_ms, _NEVER):
            return _listed(asked, ErrorCode.UNSUPPORTED_VERSION)
        partition = hosted.partition(topic, asked.partition_index)
        if partition is None:
            return _listed(asked, hosted.missing(topic, asked.partition_index))
        error = _error(partition, asked.current_leader_epoch)
        if error:
            return _listed(asked, error)
        end = _end(partition, asked.timestamp_ms)
        result = _listed(asked, ErrorCode.NONE, -1 if end is None else end)
        if end is None:
            is_largest = asked.timestamp_ms == MAX_TIMESTAMP
            sought.append(_Sought(partition, None if is_largest else asked.timestamp_ms, result))
        return result

    response = ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResult(
                name=topic.name, partitions=[listed(topic.name, p) for p in topic.partitions]
            )
            for topic in request.topics
        ]
    )
    # A segment may be removed or compacted while it is looked through: look again, once.
    for is_last in (False, True):
        sought = await _look_up(sought, reads, is_last=is_last)
    inbound.respond(response)


async def _look_up(sought: list[_Sought], reads: Reads, *, is_last: bool) -> list[_Sought]:
    """Fill in what is found; what has to be looked up again."""
    again = []
    found = await reads.searched([one.search() for one in sought]) if sought else []
    for one, at in zip(sought, found, strict=True):
        if isinstance(at, TimestampAndOffset):
            one.result.offset, one.result.timestamp_ms = at
            one.result.leader_epoch = _LEADER_EPOCH
        elif at is not None and not is_last:
            again.append(one)
        elif at is not None:
            log.error("%s: %s", one.partition.name, at)
            one.result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return again


def _listed(
    asked: ListOffsetsPartition, error: ErrorCode, offset: int = -1
) -> ListOffsetsPartitionResult:
    return ListOffsetsPartitionResult(
        partition_index=asked.partition_index,
        error_code=error,
        offset=offset,
        leader_epoch=-1 if offset < 0 else _LEADER_EPOCH,
    )


def _end(partition: Partition, timestamp_ms: int) -> int | None:
    """The offset that is meant by what is no time; None where it has to be looked up."""
    if timestamp_ms == LATEST:
        return partition.log.high_watermark
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        return partition.log.log_start_offset
    if timestamp_ms == LATEST_TIERED:
        return -1  # there is no tiered storage
    return None


def _error(partition: Partition, claimed_epoch: int) -> ErrorCode:
    return partition.error or epoch_error(claimed_epoch)


def offset_for_leader_epoch(inbound: Inbound, hosted: Hosted) -> None:
    """Where an epoch ends; there is only ever one here."""
    request: OffsetForLeaderEpochRequest = inbound.message
    inbound.respond(
        OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[_epoch_end(topic.topic, p, hosted) for p in topic.partitions],
                )
                for topic in request.topics
            ]
        )
    )


def _epoch_end(
    topic: str, asked: OffsetForLeaderPartition, hosted: Hosted
) -> OffsetForLeaderPartitionResult:
    partition = hosted.partition(topic, asked.partition)
    if partition is None:
        error = hosted.missing(topic, asked.partition)
    else:
        error = _error(partition, asked.current_leader_epoch)
    result = OffsetForLeaderPartitionResult(error_code=error, partition=asked.partition)
    if partition is not None and not error:
        end = partition.log.end_offset_for_epoch(asked.leader_epoch)
        result.leader_epoch, result.end_offset = end.leader_epoch, end.end_offset
    return result


def delete_records(inbound: Inbound, hosted: Hosted) -> None:
    """Let partitions begin later; answered when that is durable."""
    _Deleting(inbound, hosted).run()


class _Deleting:
    """One DeleteRecords request until all its partitions are done."""

    def __init__(self, inbound: Inbound, hosted: Hosted) -> None:
        self._inbound = inbound
        self._hosted = hosted
        self._missing = 1

    def run(self) -> None:
        request: DeleteRecordsRequest = self._inbound.message
        # Each partition once, however often it is asked for: the last offset counts.
        topics: dict[str, dict[int, DeleteRecordsPartition]] = {}
        for topic in request.topics:
            asked = {p.partition_index: p for p in topic.partitions}
            topics.setdefault(topic.name, {}).update(asked)
        self._response = DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name=name, partitions=[self._delete(name, p) for p in partitions.values()]
                )
                for name, partitions in topics.items()
            ]
        )
        self._one_less()

    def _delete(self, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        result = DeleteRecordsPartitionResult(
            partition_index=asked.partition_index, low_watermark=-1, error_code=ErrorCode.NONE
        )
        partition = self._hosted.partition(topic, asked.partition_index)
        if partition is None:
            result.error_code = self._hosted.missing(topic, asked.partition_index)
        else:
            result.error_code = _error(partition, -1)
        if self._hosted.is_internal(topic):
            result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
        if partition is None or result.error_code:
            return result
        step = partition.log.delete_records(asked.offset)
        if isinstance(step, Refusal):
            result.error_code = step.code
            return result
        self._missing += 1
        result.low_watermark = partition.log.log_start_offset
        self._hosted.perform(step, self._done(result))
        return result

    def _done(self, result: DeleteRecordsPartitionResult) -> Callable[[OSError | None], None]:
        def done(error: OSError | None) -> None:
            if error is not None:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                result.low_watermark = -1
            self._one_less()

        return done

    def _one_less(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._inbound.respond(self._response)
