"""Convert between the fetch plan of `fetch_state_machine` and Fetch requests and responses."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Final

from partage.client.consumer.fetch_state_machine import (
    FetchedData,
    FetchResult,
    OutOfRange,
    PermanentFailure,
    PlannedFetch,
    RetryLater,
)
from partage.client.consumer.partition_state import FetchedChunk, LogOffsets
from partage.client.consumer.records import FetchedBatches
from partage.client.errors import CORRUPT_ON_BROKER, BrokerResponseError, CorruptRecordsError
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.fetch import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from partage.wire.records.batch import parse_header
from partage.wire.records.columns import BatchScan
from partage.wire.records.decoder import scan
from partage.wire.types import ZERO_UUID, Buffer

_CONTROL: Final = 0x20
_APPEND_TIME: Final = 0x08


class FetchRules:
    """Settings that are the same for all fetches of a consumer."""

    def __init__(
        self,
        *,
        max_wait_ms: int,
        min_bytes: int,
        partition_bytes: int,
        read_committed: bool,
        check_crcs: bool,
        rack: str = "",
    ) -> None:
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.partition_bytes = partition_bytes
        self.read_committed = read_committed
        self.check_crcs = check_crcs
        self.rack = rack


def build_request(fetch: PlannedFetch, rules: FetchRules) -> FetchRequest:
    """Return the FetchRequest of a fetch, with its partitions in the order of the fetch."""
    topics: list[FetchTopic] = []
    # A topic may occur twice: brokers fill the response in the order of the partitions (KIP-74).
    for (name, topic_id), group in groupby(
        fetch.partitions, lambda one: (one.permit.partition.topic, one.placement.topic_id)
    ):
        partitions = [
            FetchPartition(
                partition=one.permit.partition.partition,
                current_leader_epoch=one.placement.leadership.leader_epoch,
                fetch_offset=one.offset,
                partition_max_bytes=rules.partition_bytes,
            )
            for one in group
        ]
        topics.append(FetchTopic(topic=name, topic_id=topic_id, partitions=partitions))
    return FetchRequest(
        max_wait_ms=rules.max_wait_ms,
        min_bytes=rules.min_bytes,
        max_bytes=fetch.bytes_max,
        isolation_level=int(rules.read_committed),
        topics=topics,
        rack_id=rules.rack,
    )


def has_topic_ids(fetch: PlannedFetch) -> bool:
    """True if all topic ids are known, so that Fetch v13 and later can be used."""
    return all(one.placement.topic_id != ZERO_UUID for one in fetch.partitions)


def results_by_partition(
    fetch: PlannedFetch, answer: FetchResponse
) -> dict[TopicPartition, FetchPartitionResult]:
    """Return the results by partition; the response names topics by name or by id."""
    names = {one.placement.topic_id: one.permit.partition.topic for one in fetch.partitions}
    return {
        TopicPartition(topic.topic or names.get(topic.topic_id, ""), result.partition_index): result
        for topic in answer.responses
        for result in topic.partitions
    }


def parse_result(
    partition: TopicPartition,
    offset: int,
    result: FetchPartitionResult | None,
    rules: FetchRules,
    retry_at_ms: int,
) -> tuple[FetchResult, int]:
    """Return the meaning of a partition's result, and its error code."""
    if result is None:
        return RetryLater(retry_at_ms), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    code = result.error_code
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return OutOfRange(), code
    if code == ErrorCode.CORRUPT_MESSAGE:
        return PermanentFailure(CorruptRecordsError(partition, offset, CORRUPT_ON_BROKER)), code
    if code:
        refused = BrokerResponseError(code, f"fetching {partition}")
        if not refused.is_retriable:
            return PermanentFailure(refused), code
        # A follower may be about to learn the new epoch; Kafka's client asks it again, too.
        return RetryLater(retry_at_ms, keeps_replica=code == ErrorCode.UNKNOWN_LEADER_EPOCH), code
    blob: Buffer = result.records[0] if result.records else b""
    found = scan(blob, verify_crc=rules.check_crcs)
    if not found.count:
        if found.reason not in ("end", "incomplete"):
            after = parse_header(blob).next_offset if found.reason == "crc" else None
            error = CorruptRecordsError(partition, offset, _WRONG[found.reason], after)
            return PermanentFailure(error), 0
        return _data(None, result), 0
    end = found.last_offset[-1] + 1
    if end <= offset:
        return _data(None, result), 0
    if all(flags & _CONTROL for flags in set(found.attributes)):
        return _data(FetchedChunk(offset, end, 0, None), result), 0
    aborted = None
    if rules.read_committed:
        aborted = [(t.producer_id, t.first_offset) for t in result.aborted_transactions or ()]
    sound = blob if found.stop == len(blob) else memoryview(blob)[: found.stop]
    stored = FetchedBatches(partition, sound, end, aborted, _timestamp_types(found))
    return _data(FetchedChunk(offset, end, len(sound), stored), result), 0


_WRONG: Final[Mapping[str, str]] = {
    "magic": "not a record batch, or a format older than Kafka 0.11, which is not supported",
    "length": "an invalid record batch length",
    "crc": "a wrong checksum; check_crcs=False disables this check",
    "order": "an offset that is out of order",
    "count": "an invalid number of records",
}


def _data(chunk: FetchedChunk | None, result: FetchPartitionResult) -> FetchedData:
    ends = LogOffsets(result.log_start_offset, result.high_watermark, result.last_stable_offset)
    return FetchedData(chunk, ends, result.preferred_read_replica)


def _timestamp_types(found: BatchScan) -> list[tuple[int, int]]:
    kinds = {flags: int(bool(flags & _APPEND_TIME)) for flags in set(found.attributes)}
    if len(set(kinds.values())) == 1:
        return [(found.last_offset[-1], kinds[found.attributes[0]])]
    return [
        (last, kinds[flags])
        for last, flags in zip(found.last_offset, found.attributes, strict=True)
    ]
