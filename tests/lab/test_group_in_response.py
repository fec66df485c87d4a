"""Which responses only the coordinator of a group can send."""

from __future__ import annotations

import pytest

from partage.lab.checkers.group_in_response import group_in_response
from partage.model.errors import ErrorCode
from partage.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from partage.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest, DeleteGroupsResult
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from partage.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartitionResult,
    OffsetCommitRequest,
    OffsetCommitTopicResult,
)
from partage.wire.apis.offset_fetch import OFFSET_FETCH, OffsetFetchRequest
from partage.wire.apis.sync_group import SYNC_GROUP, SyncGroupRequest

BEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
CONSUMER_BEAT = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)


def heartbeat(code):
    return HEARTBEAT.response(error_code=code)


@pytest.mark.parametrize(
    ("code", "group"),
    [
        (ErrorCode.NONE, "g"),
        (ErrorCode.UNKNOWN_MEMBER_ID, "g"),
        (ErrorCode.REBALANCE_IN_PROGRESS, "g"),
        (ErrorCode.NOT_COORDINATOR, None),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None),
        (ErrorCode.INVALID_REQUEST, None),
    ],
)
def test_error_tells_whether_the_coordinator_responded(code, group):
    assert group_in_response(BEAT, 4, heartbeat(code)) == group


def test_consumer_protocol_is_judged():
    response = CONSUMER_GROUP_HEARTBEAT.response(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
    assert group_in_response(CONSUMER_BEAT, 1, response) == "g"


def test_error_of_a_partition_counts():
    request = OffsetCommitRequest(group_id="g", member_id="", topics=[])

    def response(code):
        results = [OffsetCommitPartitionResult(partition_index=0, error_code=code)]
        return OFFSET_COMMIT.response(
            topics=[OffsetCommitTopicResult(name="t", partitions=results)]
        )

    assert group_in_response(request, 8, response(0)) == "g"
    assert group_in_response(request, 8, response(ErrorCode.NOT_COORDINATOR)) is None


def test_offset_fetch_names_its_groups_from_version_8_on():
    response = OFFSET_FETCH.response(topics=[], groups=[])
    assert group_in_response(OffsetFetchRequest(group_id="g"), 7, response) == "g"
    assert group_in_response(OffsetFetchRequest(groups=[]), 8, response) is None


def test_deleted_group_is_named():
    result = DeleteGroupsResult(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    response = DELETE_GROUPS.response(results=[result])
    assert group_in_response(DeleteGroupsRequest(groups_names=["g"]), 2, response) == "g"


def test_sync_without_a_protocol_is_rejected_by_any_broker():
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[])
    response = SYNC_GROUP.response(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, assignment=b"")
    assert group_in_response(request, 5, response) is None
    assert group_in_response(request, 4, response) == "g"
