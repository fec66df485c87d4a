"""Rule ``commits``: histories that break it or keep it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from partage.coordinator.records import GroupRecord, GroupTombstone, OffsetRecord, OffsetTombstone
from partage.lab import history
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


def show(builder: HistoryBuilder, offset: int | None, *, of_all: bool = False) -> None:
    """An OffsetFetch of one or all partitions shows an offset, or none."""
    topics = None if of_all else [OffsetFetchTopic(name="t", partition_indexes=[0])]
    asked = builder.receive_request(
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
    builder.send_response(asked, OffsetFetchResponse(groups=[group]))


def write(builder: HistoryBuilder, offset: int) -> None:
    """A durable commit whose response is lost."""
    commit(builder, code=-1, offset=offset)


def empty(builder: HistoryBuilder, generation: int) -> None:
    """The group becomes empty."""
    at_ms = builder.at_ms + 1
    builder.append_records(
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


def delete_group(builder: HistoryBuilder) -> None:
    asked = builder.receive_request(DELETE_GROUPS, DeleteGroupsRequest(groups_names=["g"]))
    done = DeleteGroupsResult(group_id="g", error_code=0)
    builder.send_response(asked, DeleteGroupsResponse(results=[done]))


def delete_offset(builder: HistoryBuilder, *records: OffsetTombstone) -> None:
    wanted = OffsetDeleteTopic(name="t", partitions=[OffsetDeletePartition(partition_index=0)])
    asked = builder.receive_request(
        OFFSET_DELETE, OffsetDeleteRequest(group_id="g", topics=[wanted])
    )
    builder.at_ms -= 1  # in the same millisecond
    if records:
        builder.append_records(*records)
    done = OffsetDeletePartitionResult(partition_index=0, error_code=0)
    topic = OffsetDeleteTopicResult(name="t", partitions=[done])
    builder.send_response(asked, OffsetDeleteResponse(error_code=0, topics=[topic]))


def lose_topic(builder: HistoryBuilder) -> None:
    builder.append(history.TopicDeleted, topic="t")
    builder.append(history.TopicDeletionApplied, broker=1, topic="t")


def acknowledged_offset_is_omitted(builder: HistoryBuilder) -> None:
    builder.generation(1, A)
    commit(builder)
    show(builder, None, of_all=True)


def older_offset_is_shown(builder: HistoryBuilder) -> None:
    builder.generation(1, A)
    commit(builder)
    write(builder, 6)
    show(builder, 6)
    show(builder, 5)


def deleted_offset_exists(builder: HistoryBuilder) -> None:
    builder.generation(1, A)
    commit(builder)
    delete_offset(builder)


def offset_of_deleted_group_exists(builder: HistoryBuilder) -> None:
    builder.generation(1, A)
    commit(builder)
    empty(builder, 2)
    delete_group(builder)


def wrong_offset_is_deleted(builder: HistoryBuilder) -> None:
    builder.generation(1, A)
    commit(builder)
    empty(builder, 2)
    delete_offset(builder, OffsetTombstone(group_id="h", topic="t", partition=0))


def offset_of_deleted_topic_is_shown(builder: HistoryBuilder) -> None:
    builder.generation(1, A)
    commit(builder)
    lose_topic(builder)
    show(builder, 5)


def offset_expires_before_retention_of_empty_group(builder: HistoryBuilder) -> None:
    builder.generation(1, A)
    commit(builder)
    builder.at_ms += RETENTION_MS
    empty(builder, 2)
    builder.at_ms += RETENTION_MS - 10
    builder.append_records(GONE, GroupTombstone(group_id="g"))


def offset_expires_during_rebalance(builder: HistoryBuilder) -> None:
    builder.generation(1, A)
    commit(builder)
    builder.at_ms += RETENTION_MS
    builder.generation(2, A, awaits=True)
    builder.append_records(GONE)


@pytest.mark.parametrize(
    "build",
    [
        acknowledged_offset_is_omitted,
        older_offset_is_shown,
        deleted_offset_exists,
        offset_of_deleted_group_exists,
        wrong_offset_is_deleted,
        offset_of_deleted_topic_is_shown,
        offset_expires_before_retention_of_empty_group,
        offset_expires_during_rebalance,
    ],
    ids=lambda build: build.__name__,
)
def test_invalid_offset_history_is_rejected(build: Callable[[HistoryBuilder], None]) -> None:
    with pytest.raises(RuleViolationError) as violation:
        build(HistoryBuilder())
    assert violation.value.rule == "commits", violation.value


def test_valid_offset_removals_are_accepted() -> None:
    """Offsets are removed by topic deletion, by offset deletion and by expiry in an empty group."""
    builder = HistoryBuilder()
    builder.generation(1, A)
    commit(builder)
    show(builder, 5)
    lose_topic(builder)
    builder.append_records(GONE)
    show(builder, None, of_all=True)
    commit(builder)
    delete_offset(builder, GONE)
    commit(builder)
    empty(builder, 2)
    builder.at_ms += RETENTION_MS
    builder.append_records(GONE, GroupTombstone(group_id="g"))
    show(builder, None)


def test_next_owner_may_show_deleted_topic_offset() -> None:
    builder = HistoryBuilder()
    builder.generation(1, A)
    commit(builder)
    lose_topic(builder)
    builder.append(history.BrokerDied, cause="killed")
    show(builder, 5)


def test_unacknowledged_offset_may_be_shown() -> None:
    builder = HistoryBuilder()
    builder.generation(1, A)
    write(builder, 7)
    show(builder, 7)


def test_offset_record_without_request_is_rejected() -> None:
    """An offset record must match a request."""
    builder = HistoryBuilder()
    builder.generation(1, A)
    with pytest.raises(RuleViolationError, match="no request matches"):
        builder.append_records(
            OffsetRecord(group_id="g", topic="t", partition=0, offset=9, commit_ms=1)
        )
