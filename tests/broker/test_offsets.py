"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

import pytest

from partage.model.errors import ErrorCode
from partage.wire.apis.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from partage.wire.apis.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    LIST_OFFSETS,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from partage.wire.apis.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from partage.wire.records.encoder import SimpleRecord, encode_batch

from .requests import NOW_MS, batch, create, fetch, list_offset, offset_range, produce, values


@pytest.fixture
def topic(raw):
    """Offsets 0 to 2 at 0 to 2 ms, 3 at 100 ms, 4 at 50 ms."""
    create(raw, "t")
    produce(raw, "t", batch(b"a", b"b", b"c"))
    for after_ms in (100, 50):
        produce(raw, "t", encode_batch([SimpleRecord(b"k", b"v", timestamp_ms=NOW_MS + after_ms)]))
    return "t"


@pytest.mark.parametrize("version", range(LIST_OFFSETS.version_min, LIST_OFFSETS.version_max + 1))
def test_list_offsets_ends_every_version(raw, topic, version):
    last, first = (list_offset(raw, topic, end, version=version) for end in (LATEST, EARLIEST))
    assert (last.offset, first.offset) == (5, 0)
    assert (last.timestamp_ms, first.timestamp_ms) == (-1, -1)
    assert last.leader_epoch == (0 if version >= 4 else -1)


def test_list_offsets_max_timestamp_and_tiers(raw, topic):
    found = list_offset(raw, topic, MAX_TIMESTAMP)
    assert (found.offset, found.timestamp_ms) == (3, NOW_MS + 100)
    assert list_offset(raw, topic, EARLIEST_LOCAL).offset == 0
    tiered = list_offset(raw, topic, LATEST_TIERED)
    assert (tiered.error_code, tiered.offset, tiered.leader_epoch) == (0, -1, -1)


@pytest.mark.parametrize(
    ("time_ms", "offset"),
    [(0, 0), (NOW_MS, 0), (NOW_MS + 1, 1), (NOW_MS + 3, 3), (NOW_MS + 60, 3), (NOW_MS + 101, -1)],
)
def test_list_offsets_by_timestamp(raw, topic, time_ms, offset):
    found = list_offset(raw, topic, time_ms)
    assert (found.error_code, found.offset) == (0, offset)
    assert found.timestamp_ms == -1 if offset < 0 else found.timestamp_ms >= time_ms


@pytest.mark.parametrize(
    ("time_ms", "version"),
    [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (-6, 9), (-(2**63), 9)],
)
def test_list_offsets_unknown_special_timestamp(raw, topic, time_ms, version):
    found = list_offset(raw, topic, time_ms, version=version)
    assert (found.error_code, found.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)


def test_list_offsets_duplicate_partition(raw):
    create(raw, "t", 2)
    asked = [ListOffsetsPartition(partition_index=n, timestamp_ms=0) for n in (0, 1, 0)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=asked)])
    (topic,) = raw.request(LIST_OFFSETS, request).topics
    assert [(p.partition_index, p.error_code) for p in topic.partitions] == [
        (0, ErrorCode.INVALID_REQUEST),
        (1, ErrorCode.NONE),
        (0, ErrorCode.INVALID_REQUEST),
    ]


def test_list_offsets_empty_partition(raw):
    create(raw, "empty")
    assert offset_range(raw, "empty") == (0, 0)
    for time_ms in (MAX_TIMESTAMP, NOW_MS):
        found = list_offset(raw, "empty", time_ms)
        assert (found.offset, found.timestamp_ms) == (-1, -1)


def test_list_offsets_errors_per_partition(raw, topic):
    create(raw, "ahead")
    asked = [
        ("ahead", ListOffsetsPartition(partition_index=0, timestamp_ms=0, current_leader_epoch=3)),
        (topic, ListOffsetsPartition(partition_index=1, timestamp_ms=LATEST)),
        (topic, ListOffsetsPartition(partition_index=0, timestamp_ms=-1, current_leader_epoch=0)),
    ]
    topics = [ListOffsetsTopic(name=name, partitions=[one]) for name, one in asked]
    answered = raw.request(LIST_OFFSETS, ListOffsetsRequest(topics=topics)).topics
    assert [p.error_code for t in answered for p in t.partitions] == [75, 3, 0]
    assert [p.offset for t in answered for p in t.partitions] == [-1, -1, 5]


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(("epoch", "end"), [(0, (0, 5)), (1, (-1, -1)), (-1, (-1, -1))])
def test_leader_epoch_end_offset(raw, topic, version, epoch, end):
    asked = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    topics = [OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    request = OffsetForLeaderEpochRequest(topics=topics)
    (answered,) = raw.request(OFFSET_FOR_LEADER_EPOCH, request, version).topics
    (found,) = answered.partitions
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, *end)


def test_leader_epoch_unknown_partition(raw, topic):
    asked = [
        OffsetForLeaderPartition(partition=9, leader_epoch=0),
        OffsetForLeaderPartition(partition=0, leader_epoch=0, current_leader_epoch=7),
    ]
    topics = [OffsetForLeaderTopic(topic=topic, partitions=asked)]
    request = OffsetForLeaderEpochRequest(topics=topics)
    (answered,) = raw.request(OFFSET_FOR_LEADER_EPOCH, request).topics
    assert [p.error_code for p in answered.partitions] == [3, 75]


def delete_records(raw, topic, offset, partition=0, version=2):
    asked = DeleteRecordsPartition(partition_index=partition, offset=offset)
    topics = [DeleteRecordsTopic(name=topic, partitions=[asked])]
    request = DeleteRecordsRequest(topics=topics, timeout_ms=1000)
    (answered,) = raw.request(DELETE_RECORDS, request, version).topics
    (result,) = answered.partitions
    return result.error_code, result.low_watermark


@pytest.mark.parametrize("version", [0, 1, 2])
def test_delete_records_moves_start_offset(raw, topic, version):
    assert delete_records(raw, topic, 2, version=version) == (0, 2)
    assert offset_range(raw, topic) == (2, 5)
    (before,) = fetch(raw, topic, [1])
    assert before.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    (result,) = fetch(raw, topic, [2])
    assert result.log_start_offset == 2
    assert values(result, 2) == [b"c", b"v", b"v"]
    assert list_offset(raw, topic, 0).offset == 2


def test_delete_records_up_to_high_watermark(raw, topic):
    assert delete_records(raw, topic, -1) == (0, 5)
    assert offset_range(raw, topic) == (5, 5)
    assert produce(raw, topic, batch(b"a")).base_offset == 5


def test_delete_records_never_lowers_start_offset(raw, topic):
    assert delete_records(raw, topic, 3) == (0, 3)
    assert delete_records(raw, topic, 1) == (0, 3)


def test_delete_records_duplicate_partition_last_counts(raw, topic):
    asked = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (4, 1, 2)]
    topics = [DeleteRecordsTopic(name=topic, partitions=[one]) for one in asked]
    (answered,) = raw.request(
        DELETE_RECORDS, DeleteRecordsRequest(topics=topics, timeout_ms=1000)
    ).topics
    ((code, low),) = [(p.error_code, p.low_watermark) for p in answered.partitions]
    assert (code, low) == (0, 2)
    assert offset_range(raw, topic) == (2, 5)


@pytest.mark.parametrize("offset", [6, -2])
def test_delete_records_beyond_end(raw, topic, offset):
    assert delete_records(raw, topic, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert offset_range(raw, topic) == (0, 5)


def test_delete_records_invalid_partition_is_refused(raw, topic):
    assert delete_records(raw, topic, 1, partition=4) == (3, -1)
    assert delete_records(raw, "nothing", 1) == (3, -1)
    assert delete_records(raw, "__consumer_offsets", 0) == (17, -1)
    create(raw, "table", cleanup_policy="compact")
    assert delete_records(raw, "table", 0) == (ErrorCode.POLICY_VIOLATION, -1)
