"""What is not to be of committed offsets, told by hand: the rule ``commits`` is broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from partage.coordinator.records import GroupRecord, GroupTombstone, OffsetRecord, OffsetTombstone
from partage.lab import history as told
from partage.lab.history import RuleViolationError
from partage.model.settings import GroupSettings
from partage.wire.apis.delete_groups import (
    DELETE_GROUPS,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResult,
)
from partage.wire.apis.offset_delete import (
    OFFSET_DELETE,
    OffsetDeletePartition,
    OffsetDeletePartitionResult,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopic,
    OffsetDeleteTopicResult,
)
from partage.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchGroup,
    OffsetFetchGroupResult,
    OffsetFetchPartitionResult,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
    OffsetFetchTopicResult,
)

from .history_builder import HistoryBuilder, commit, member, share

A = member("a", share(0))
GONE = OffsetTombstone(group_id="g", topic="t", partition=0)
RETENTION_MS = GroupSettings().offsets_retention_ms


def show(story: HistoryBuilder, offset: int | None, *, of_all: bool = False) -> None:
    """An OffsetFetch, of one partition or of all, is shown an offset, or nothing."""
    topics = None if of_all else [OffsetFetchTopic(name="t", partition_indexes=[0])]
    asked = story.receive_request(
        OFFSET_FETCH, OffsetFetchRequest(groups=[OffsetFetchGroup(group_id="g", topics=topics)])
    )
    place = OffsetFetchPartitionResult(
        partition_index=0,
        committed_offset=-1 if offset is None else offset,
        metadata="",
        error_code=0,
    )
    shown = [OffsetFetchTopicResult(name="t", partitions=[place])]
    if of_all and offset is None:
        shown = []
    group = OffsetFetchGroupResult(group_id="g", topics=shown)
    story.send_response(asked, OffsetFetchResponse(groups=[group]))


def write(story: HistoryBuilder, offset: int) -> None:
    """A commit that is durable, and whose answer is lost."""
    commit(story, code=-1, offset=offset)


def empty(story: HistoryBuilder, generation: int) -> None:
    """Nobody is in the group any more, from now on."""
    at_ms = story.at_ms + 1
    story.append_records(
        GroupRecord(
            group_id="g",
            protocol_type="consumer",
            generation=generation,
            protocol=None,
            leader=None,
            since_ms=at_ms,
            members=(),
        )
    )


def delete_group(story: HistoryBuilder) -> None:
    asked = story.receive_request(DELETE_GROUPS, DeleteGroupsRequest(groups_names=["g"]))
    done = DeleteGroupsResult(group_id="g", error_code=0)
    story.send_response(asked, DeleteGroupsResponse(results=[done]))


def delete_offset(story: HistoryBuilder, *records: OffsetTombstone) -> None:
    wanted = OffsetDeleteTopic(name="t", partitions=[OffsetDeletePartition(partition_index=0)])
    asked = story.receive_request(OFFSET_DELETE, OffsetDeleteRequest(group_id="g", topics=[wanted]))
    story.at_ms -= 1  # at the same moment
    if records:
        story.append_records(*records)
    done = OffsetDeletePartitionResult(partition_index=0, error_code=0)
    topic = OffsetDeleteTopicResult(name="t", partitions=[done])
    story.send_response(asked, OffsetDeleteResponse(error_code=0, topics=[topic]))


def lose_topic(story: HistoryBuilder) -> None:
    story.append(told.TopicDeleted, topic="t")
    story.append(told.TopicDeletionApplied, broker=1, topic="t")


def what_is_acknowledged_is_left_out(story: HistoryBuilder) -> None:
    story.generation(1, A)
    commit(story)
    show(story, None, of_all=True)


def what_was_shown_is_shown_no_more(story: HistoryBuilder) -> None:
    story.generation(1, A)
    commit(story)
    write(story, 6)
    show(story, 6)
    show(story, 5)


def what_is_deleted_is_there(story: HistoryBuilder) -> None:
    story.generation(1, A)
    commit(story)
    delete_offset(story)


def what_a_deleted_group_had_is_there(story: HistoryBuilder) -> None:
    story.generation(1, A)
    commit(story)
    empty(story, 2)
    delete_group(story)


def another_one_goes_than_was_deleted(story: HistoryBuilder) -> None:
    story.generation(1, A)
    commit(story)
    empty(story, 2)
    delete_offset(story, OffsetTombstone(group_id="h", topic="t", partition=0))


def a_deleted_topic_s_offset_is_shown(story: HistoryBuilder) -> None:
    story.generation(1, A)
    commit(story)
    lose_topic(story)
    show(story, 5)


def what_a_group_had_goes_before_it_was_empty_for_long_enough(story: HistoryBuilder) -> None:
    story.generation(1, A)
    commit(story)
    story.at_ms += RETENTION_MS
    empty(story, 2)
    story.at_ms += RETENTION_MS - 10
    story.append_records(GONE, GroupTombstone(group_id="g"))


def an_offset_goes_in_the_middle_of_a_rebalance(story: HistoryBuilder) -> None:
    story.generation(1, A)
    commit(story)
    story.at_ms += RETENTION_MS
    story.generation(2, A, awaits=True)
    story.append_records(GONE)


@pytest.mark.parametrize(
    "tell",
    [
        what_is_acknowledged_is_left_out,
        what_was_shown_is_shown_no_more,
        what_is_deleted_is_there,
        what_a_deleted_group_had_is_there,
        another_one_goes_than_was_deleted,
        a_deleted_topic_s_offset_is_shown,
        what_a_group_had_goes_before_it_was_empty_for_long_enough,
        an_offset_goes_in_the_middle_of_a_rebalance,
    ],
    ids=lambda tell: tell.__name__,
)
def test_it_is_found(tell: Callable[[HistoryBuilder], None]) -> None:
    with pytest.raises(RuleViolationError) as violation:
        tell(HistoryBuilder())
    assert violation.value.rule == "commits", violation.value


def test_what_may_be() -> None:
    """Offsets go with their topic, when they are deleted, and when the group was long empty."""
    story = HistoryBuilder()
    story.generation(1, A)
    commit(story)
    show(story, 5)
    lose_topic(story)
    story.append_records(GONE)
    show(story, None, of_all=True)
    commit(story)
    delete_offset(story, GONE)
    commit(story)
    empty(story, 2)
    story.at_ms += RETENTION_MS
    story.append_records(GONE, GroupTombstone(group_id="g"))
    show(story, None)


def test_who_has_the_group_next_may_not_know_of_the_topic() -> None:
    story = HistoryBuilder()
    story.generation(1, A)
    commit(story)
    lose_topic(story)
    story.append(told.BrokerDied, cause="killed")
    show(story, 5)


def test_an_offset_that_nobody_was_told_of_may_be_shown() -> None:
    story = HistoryBuilder()
    story.generation(1, A)
    write(story, 7)
    show(story, 7)


def test_records_that_are_as_committed_are_not_asked_for_twice() -> None:
    """A value that nobody asked for is none that a member may see."""
    story = HistoryBuilder()
    story.generation(1, A)
    with pytest.raises(RuleViolationError, match="no request matches"):
        story.append_records(
            OffsetRecord(group_id="g", topic="t", partition=0, offset=9, commit_ms=1)
        )
