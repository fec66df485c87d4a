"""What is not to be of records, where they end and how they are handed out, told by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from partage.lab import history as told
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


def a_record_is_there_twice(story: HistoryBuilder) -> None:
    story.append(told.RecordProduced, partition=("t", 0), offset=2, value=b"2")
    story.append(told.RecordProduced, partition=("t", 0), offset=3, value=b"2")


def a_record_is_another_one(story: HistoryBuilder) -> None:
    story.append(told.RecordProduced, partition=("t", 0), offset=3, value=b"3")
    story.append(told.RecordProduced, partition=("t", 0), offset=3, value=b"2:1")


def a_record_comes_before_its_predecessor(story: HistoryBuilder) -> None:
    story.append(told.RecordProduced, partition=("t", 0), offset=3, value=b"2:4")
    story.append(told.RecordProduced, partition=("t", 0), offset=2, value=b"2:5")


def a_record_is_not_there_in_the_end(story: HistoryBuilder) -> None:
    story.append(told.RecordProduced, partition=("t", 0), offset=0, value=b"1")
    story.append(told.RecordProduced, partition=("t", 0), offset=1, value=b"2")
    story.append(told.PartitionReread, partition=("t", 0), first=0, end=1, records=((0, b"1"),))


def a_record_cannot_be_read_in_the_end(story: HistoryBuilder) -> None:
    story.append(told.PartitionReread, partition=("t", 0), first=0, end=2, records=((0, b"1"),))


def show_end(story: HistoryBuilder, end: int, code: int = 0) -> None:
    """Somebody fetches from offset 2, and is shown where the partition ends."""
    wanted = FetchTopic(
        topic="t", partitions=[FetchPartition(partition=0, fetch_offset=2, partition_max_bytes=1)]
    )
    asked = story.receive_request(FETCH, FetchRequest(max_wait_ms=0, min_bytes=0, topics=[wanted]))
    shown = FetchPartitionResult(
        partition_index=0, error_code=code, high_watermark=end, records=[b""]
    )
    result = FetchTopicResult(topic="t", partitions=[shown])
    story.send_response(asked, FetchResponse(responses=[result]))


def what_was_read_is_gone(story: HistoryBuilder) -> None:
    show_end(story, 5)
    show_end(story, 4)


def what_was_acknowledged_is_not_shown(story: HistoryBuilder) -> None:
    story.append(told.RecordProduced, partition=("t", 0), offset=3, value=b"3")
    show_end(story, 3)


def an_offset_that_was_there_is_out_of_range(story: HistoryBuilder) -> None:
    show_end(story, 2)
    show_end(story, -1, code=1)


def a_commit_is_ahead_of_what_there_is(story: HistoryBuilder) -> None:
    story.generation(1, A)
    show_end(story, 4)
    commit(story)


def a_record_is_left_out(story: HistoryBuilder) -> None:
    story.append(
        told.OwnershipChanged,
        process="p",
        group_id="g",
        member_id="a",
        generation=1,
        partitions=(("t", 0),),
    )
    records = ((0, b"0"), (2, b"2"))
    story.append(
        told.RecordsDelivered, process="p", group_id="g", partition=("t", 0), records=records
    )


BROKEN: dict[Callable[[HistoryBuilder], None], str] = {
    a_record_is_there_twice: "records",
    a_record_is_another_one: "records",
    a_record_comes_before_its_predecessor: "records",
    a_record_is_not_there_in_the_end: "records",
    a_record_cannot_be_read_in_the_end: "records",
    what_was_read_is_gone: "reads",
    what_was_acknowledged_is_not_shown: "reads",
    an_offset_that_was_there_is_out_of_range: "reads",
    a_commit_is_ahead_of_what_there_is: "reads",
    a_record_is_left_out: "deliveries",
}


@pytest.mark.parametrize("tell", BROKEN, ids=lambda tell: tell.__name__)
def test_it_is_found(tell: Callable[[HistoryBuilder], None]) -> None:
    with pytest.raises(RuleViolationError) as violation:
        tell(HistoryBuilder())
    assert violation.value.rule == BROKEN[tell]
