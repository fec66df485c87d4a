"""The member's side of the bridge, in every version, as bytes."""

from __future__ import annotations

from typing import Any

import pytest

from partage.bridge.member_requests import MemberRequest, to_event, to_request
from partage.member.consumer_group.events import ConsumerHeartbeatResponseReceived
from partage.member.consumer_group.outcome import SendConsumerHeartbeat
from partage.member.events import (
    GroupMemberMetadata,
    HeartbeatResponseReceived,
    JoinResponseReceived,
    LeaveResponseReceived,
    SupportedProtocol,
    SyncResponseReceived,
)
from partage.member.outcome import SendHeartbeat, SendJoin, SendLeave, SendSync
from partage.model.errors import ErrorCode
from partage.wire.api import AnyApi
from partage.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupTopicPartitions,
)
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatResponse
from partage.wire.apis.join_group import JOIN_GROUP, JoinGroupMember, JoinGroupResponse
from partage.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupMemberResult, LeaveGroupResponse
from partage.wire.apis.sync_group import SYNC_GROUP, SyncGroupResponse
from partage.wire.types import Message

NOW_MS = 7
JOIN = SendJoin(
    serial=1,
    member_id="m",
    instance_id="i",
    session_timeout_ms=10,
    rebalance_timeout_ms=20,
    protocol_type="consumer",
    protocols=(SupportedProtocol("range", b"r", 2), SupportedProtocol("sticky", b"s")),
    reason="why",
)
SYNC = SendSync(
    serial=2,
    generation=3,
    member_id="m",
    instance_id="i",
    protocol_type="consumer",
    protocol="range",
    assignments={"m": b"1", "n": b"2"},
    assignment_error="none",
)
BEAT = SendHeartbeat(serial=3, generation=3, member_id="m", instance_id="i")
LEAVE = SendLeave(serial=4, member_id="m", instance_id="i", reason="why", is_parked=False)


def every(api: AnyApi) -> Any:
    return pytest.mark.parametrize("version", range(api.version_min, api.version_max + 1))


def sent(action: MemberRequest, api: AnyApi, version: int) -> Any:
    """Return the request as the coordinator decodes it."""
    found, message = to_request(action, "g")
    assert found is api
    decoded = api.decode_request(version, b"".join(api.encode_request(version, message)))
    assert decoded.group_id == "g"
    return decoded


def heard(action: MemberRequest, api: AnyApi, version: int, response: Message) -> Any:
    """Return the event for a response."""
    content = b"".join(api.encode_response(version, response))
    return to_event(action, api.decode_response(version, content), NOW_MS)


@every(JOIN_GROUP)
def test_join_request(version: int) -> None:
    message = sent(JOIN, JOIN_GROUP, version)
    assert (message.member_id, message.protocol_type) == ("m", "consumer")
    assert [(p.name, p.metadata) for p in message.protocols] == [("range", b"r"), ("sticky", b"s")]
    stated = [p.protocol_version for p in message.protocols]
    assert stated == ([2, -1] if version >= 6 else [-1, -1])
    assert message.session_timeout_ms == 10
    assert message.rebalance_timeout_ms == (20 if version >= 1 else -1)
    assert message.group_instance_id == ("i" if version >= 5 else None)
    assert message.reason == ("why" if version >= 8 else None)


@every(JOIN_GROUP)
def test_join_response(version: int) -> None:
    response = JoinGroupResponse(
        error_code=0,
        generation_id=4,
        protocol_type="consumer",
        protocol_name="range",
        leader="m",
        skip_assignment=True,
        member_id="m",
        members=[JoinGroupMember(member_id="m", group_instance_id="i", metadata=b"x")],
    )
    assert heard(JOIN, JOIN_GROUP, version, response) == JoinResponseReceived(
        at_ms=NOW_MS,
        serial=1,
        member_id="m",
        generation=4,
        protocol_type="consumer" if version >= 7 else None,
        protocol="range",
        leader="m",
        skip_assignment=version >= 9,
        members=(
            GroupMemberMetadata(
                member_id="m", instance_id="i" if version >= 5 else None, metadata=b"x"
            ),
        ),
    )


@every(SYNC_GROUP)
def test_sync_request(version: int) -> None:
    message = sent(SYNC, SYNC_GROUP, version)
    assert (message.generation_id, message.member_id) == (3, "m")
    assert {a.member_id: a.assignment for a in message.assignments} == {"m": b"1", "n": b"2"}
    assert message.group_instance_id == ("i" if version >= 3 else None)
    named = (message.protocol_type, message.protocol_name)
    assert named == (("consumer", "range") if version >= 5 else (None, None))
    assert message.assignment_error == ("none" if version >= 4 else None)


@every(SYNC_GROUP)
def test_sync_response(version: int) -> None:
    response = SyncGroupResponse(
        error_code=27,
        protocol_type="consumer",
        protocol_name="range",
        assignment=b"a",
        assignment_error="it raised",
    )
    assert heard(SYNC, SYNC_GROUP, version, response) == SyncResponseReceived(
        at_ms=NOW_MS,
        serial=2,
        error=ErrorCode.REBALANCE_IN_PROGRESS,
        protocol_type="consumer" if version >= 5 else None,
        protocol="range" if version >= 5 else None,
        assignment=b"a",
        assignment_error="it raised" if version >= 4 else None,
    )


@every(HEARTBEAT)
def test_heartbeat_request(version: int) -> None:
    message = sent(BEAT, HEARTBEAT, version)
    assert (message.generation_id, message.member_id) == (3, "m")
    assert message.group_instance_id == ("i" if version >= 3 else None)
    for code, error in [(0, 0), (25, 25), (12345, -1)]:
        found = heard(BEAT, HEARTBEAT, version, HeartbeatResponse(error_code=code))
        assert found == HeartbeatResponseReceived(at_ms=NOW_MS, serial=3, error=ErrorCode(error))


@every(LEAVE_GROUP)
def test_leave_request(version: int) -> None:
    message = sent(LEAVE, LEAVE_GROUP, version)
    if version < 3:
        assert message.member_id == "m"
        return
    (leaving,) = message.members
    assert (leaving.member_id, leaving.group_instance_id) == ("m", "i")
    assert leaving.reason == ("why" if version >= 5 else None)


@every(LEAVE_GROUP)
def test_leave_response(version: int) -> None:
    member = LeaveGroupMemberResult(member_id="m", group_instance_id=None, error_code=25)
    of_all = LeaveGroupResponse(error_code=16)
    of_one = LeaveGroupResponse(error_code=0, members=[member])
    assert heard(LEAVE, LEAVE_GROUP, version, of_all).error == ErrorCode.NOT_COORDINATOR
    found = heard(LEAVE, LEAVE_GROUP, version, of_one)
    error = ErrorCode.UNKNOWN_MEMBER_ID if version >= 3 else ErrorCode.NONE
    assert found == LeaveResponseReceived(at_ms=NOW_MS, serial=4, error=error)


TOPIC_ID = bytes(range(16))


@every(CONSUMER_GROUP_HEARTBEAT)
def test_consumer_heartbeat_has_changed_fields_only(version: int) -> None:
    action = SendConsumerHeartbeat(serial=5, member_id="m", member_epoch=4, instance_id="i")
    request = sent(action, CONSUMER_GROUP_HEARTBEAT, version)
    assert request == ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=4, instance_id="i"
    )


def test_full_consumer_heartbeat_has_all_fields() -> None:
    action = SendConsumerHeartbeat(
        serial=5,
        member_id="m",
        member_epoch=0,
        rack_id="r",
        rebalance_timeout_ms=20,
        subscribed_topics=("t", "u"),
        subscribed_regex="v.*",
        server_assignor="uniform",
        owned={TOPIC_ID: (0, 2)},
    )
    request = sent(action, CONSUMER_GROUP_HEARTBEAT, 1)
    assert (request.rack_id, request.rebalance_timeout_ms) == ("r", 20)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["t", "u"], "v.*")
    assert request.server_assignor == "uniform"
    (owned,) = request.topic_partitions
    assert (bytes(owned.topic_id), owned.partitions) == (TOPIC_ID, [0, 2])


@every(CONSUMER_GROUP_HEARTBEAT)
def test_consumer_heartbeat_response(version: int) -> None:
    action = SendConsumerHeartbeat(serial=5, member_id="m", member_epoch=4)
    topic = ConsumerGroupTopicPartitions(topic_id=TOPIC_ID, partitions=[0, 2])
    response = ConsumerGroupHeartbeatResponse(
        error_code=0,
        member_id="m",
        member_epoch=5,
        heartbeat_interval_ms=3,
        assignment=ConsumerGroupAssignment(topic_partitions=[topic]),
    )
    event = heard(action, CONSUMER_GROUP_HEARTBEAT, version, response)
    assert event == ConsumerHeartbeatResponseReceived(
        at_ms=NOW_MS,
        serial=5,
        error=ErrorCode.NONE,
        error_message=None,
        member_id="m",
        member_epoch=5,
        heartbeat_interval_ms=3,
        assignment={TOPIC_ID: (0, 2)},
    )


def test_consumer_heartbeat_response_without_assignment_keeps_it() -> None:
    action = SendConsumerHeartbeat(serial=5, member_id="m", member_epoch=4)
    response = ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.FENCED_MEMBER_EPOCH, error_message="late"
    )
    event = heard(action, CONSUMER_GROUP_HEARTBEAT, 1, response)
    assert (event.error, event.error_message) == (ErrorCode.FENCED_MEMBER_EPOCH, "late")
    assert event.assignment is None
