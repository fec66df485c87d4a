"""Rules ``records``, ``reads`` and ``deliveries``: histories that break them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from partage.lab import history
from partage.lab.history import RuleViolationError
from partage.wire.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResult,
)

from .history_builder import HistoryBuilder, commit, member, share

A = member("a", share(0))


def record_is_duplicated(builder: HistoryBuilder) -> None:
    builder.append(history.RecordProduced, partition=("t", 0), offset=2, value=b"2")
    builder.append(history.RecordProduced, partition=("t", 0), offset=3, value=b"2")


def record_is_replaced(builder: HistoryBuilder) -> None:
    builder.append(history.RecordProduced, partition=("t", 0), offset=3, value=b"3")
    builder.append(history.RecordProduced, partition=("t", 0), offset=3, value=b"2:1")


def record_precedes_its_predecessor(builder: HistoryBuilder) -> None:
    builder.append(history.RecordProduced, partition=("t", 0), offset=3, value=b"2:4")
    builder.append(history.RecordProduced, partition=("t", 0), offset=2, value=b"2:5")


def record_is_missing_at_end(builder: HistoryBuilder) -> None:
    builder.append(history.RecordProduced, partition=("t", 0), offset=0, value=b"1")
    builder.append(history.RecordProduced, partition=("t", 0), offset=1, value=b"2")
    builder.append(
        history.PartitionReread, partition=("t", 0), first=0, end=1, records=((0, b"1"),)
    )


def record_is_unreadable_at_end(builder: HistoryBuilder) -> None:
    builder.append(
        history.PartitionReread, partition=("t", 0), first=0, end=2, records=((0, b"1"),)
    )


def show_end(builder: HistoryBuilder, end: int, code: int = 0) -> None:
    """A Fetch from offset 2 shows the end of the partition."""
    wanted = FetchTopic(
        topic="t", partitions=[FetchPartition(partition=0, fetch_offset=2, partition_max_bytes=1)]
    )
    asked = builder.receive_request(
        FETCH, FetchRequest(max_wait_ms=0, min_bytes=0, topics=[wanted])
    )
    shown = FetchPartitionResult(
        partition_index=0, error_code=code, high_watermark=end, records=[b""]
    )
    result = FetchTopicResult(topic="t", partitions=[shown])
    builder.send_response(asked, FetchResponse(responses=[result]))


def high_watermark_moves_back(builder: HistoryBuilder) -> None:
    show_end(builder, 5)
    show_end(builder, 4)


def acknowledged_record_is_not_readable(builder: HistoryBuilder) -> None:
    builder.append(history.RecordProduced, partition=("t", 0), offset=3, value=b"3")
    show_end(builder, 3)


def readable_offset_is_out_of_range(builder: HistoryBuilder) -> None:
    show_end(builder, 2)
    show_end(builder, -1, code=1)


def commit_exceeds_log_end(builder: HistoryBuilder) -> None:
    builder.generation(1, A)
    show_end(builder, 4)
    commit(builder)


def record_is_skipped(builder: HistoryBuilder) -> None:
    builder.append(
        history.OwnershipChanged,
        process="p",
        group_id="g",
        member_id="a",
        generation=1,
        partitions=(("t", 0),),
    )
    records = ((0, b"0"), (2, b"2"))
    builder.append(
        history.RecordsDelivered, process="p", group_id="g", partition=("t", 0), records=records
    )


BROKEN: dict[Callable[[HistoryBuilder], None], str] = {
    record_is_duplicated: "records",
    record_is_replaced: "records",
    record_precedes_its_predecessor: "records",
    record_is_missing_at_end: "records",
    record_is_unreadable_at_end: "records",
    high_watermark_moves_back: "reads",
    acknowledged_record_is_not_readable: "reads",
    readable_offset_is_out_of_range: "reads",
    commit_exceeds_log_end: "reads",
    record_is_skipped: "deliveries",
}


@pytest.mark.parametrize("build", BROKEN, ids=lambda build: build.__name__)
def test_invalid_record_history_is_rejected(build: Callable[[HistoryBuilder], None]) -> None:
    with pytest.raises(RuleViolationError) as violation:
        build(HistoryBuilder())
    assert violation.value.rule == BROKEN[build]
