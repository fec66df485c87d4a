"""Tasks that end are released: a broker answers requests for months."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from functools import partial

import pytest

from partage.wire.apis.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from partage.wire.apis.list_offsets import EARLIEST

from .raw_client import RawClient
from .requests import batch, create, list_offset, offset_range, produce

REQUESTS = 50


def done_tasks() -> int:
    """Return the number of tasks that ended and still exist."""
    gc.collect()
    return sum(isinstance(each, asyncio.Task) and each.done() for each in gc.get_objects())


def delete_records(raw: RawClient) -> None:
    start = offset_range(raw, "t")[0]
    asked = DeleteRecordsPartition(partition_index=0, offset=start + 1)
    topics = [DeleteRecordsTopic(name="t", partitions=[asked])]
    request = DeleteRecordsRequest(topics=topics, timeout_ms=1_000)
    (answered,) = raw.request(DELETE_RECORDS, request, 2).topics
    assert (answered.partitions[0].error_code, answered.partitions[0].low_watermark) == (
        0,
        start + 1,
    )


@pytest.mark.parametrize(
    "ask",
    [delete_records, partial(list_offset, topic="t", timestamp_ms=EARLIEST)],
    ids=["DeleteRecords", "ListOffsets"],
)
def test_answered_requests_leave_no_tasks(raw: RawClient, ask: Callable[[RawClient], None]) -> None:
    create(raw, "t")
    produce(raw, "t", batch(*[b"v"] * (REQUESTS + 1)))
    ask(raw)
    before = done_tasks()
    for _ in range(REQUESTS):
        ask(raw)
    assert done_tasks() < before + REQUESTS // 2
