"""Conversion of a member's actions to requests, and of the responses to events.

Each message has the fields of all versions; the connection encodes those of the negotiated version.
Comments below say where a version matters.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from partage.member.consumer_group.events import ConsumerHeartbeatResponseReceived
from partage.member.consumer_group.outcome import SendConsumerHeartbeat
from partage.member.events import (
    CoordinatorResponse,
    GroupMemberMetadata,
    HeartbeatResponseReceived,
    JoinResponseReceived,
    LeaveResponseReceived,
    SyncResponseReceived,
)
from partage.member.outcome import SendHeartbeat, SendJoin, SendLeave, SendSync
from partage.model.errors import ErrorCode
from partage.wire.api import AnyApi
from partage.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupTopicPartitions,
)
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.join_group import (
    JOIN_GROUP,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
)
from partage.wire.apis.leave_group import (
    LEAVE_GROUP,
    LeaveGroupMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
)
from partage.wire.apis.sync_group import (
    SYNC_GROUP,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)
from partage.wire.types import Message

MemberRequest: TypeAlias = SendJoin | SendSync | SendHeartbeat | SendLeave | SendConsumerHeartbeat


def to_request(action: MemberRequest, group_id: str) -> tuple[AnyApi, Message]:
    """Return the API and the request for a member's action."""
    match action:
        case SendJoin():
            return JOIN_GROUP, _join(action, group_id)
        case SendSync():
            return SYNC_GROUP, _sync(action, group_id)
        case SendHeartbeat():
            return HEARTBEAT, HeartbeatRequest(
                group_id=group_id,
                generation_id=action.generation,
                member_id=action.member_id,
                group_instance_id=action.instance_id,
            )
        case SendLeave():
            return LEAVE_GROUP, _leave(action, group_id)
        case SendConsumerHeartbeat():
            return CONSUMER_GROUP_HEARTBEAT, _consumer_heartbeat(action, group_id)


def _join(action: SendJoin, group_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=action.session_timeout_ms,
        rebalance_timeout_ms=action.rebalance_timeout_ms,
        member_id=action.member_id,
        group_instance_id=action.instance_id,
        protocol_type=action.protocol_type,
        protocols=[
            JoinGroupProtocol(name=p.name, metadata=p.metadata, protocol_version=p.version)
            for p in action.protocols
        ],
        reason=action.reason,
    )


def _sync(action: SendSync, group_id: str) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=action.generation,
        member_id=action.member_id,
        group_instance_id=action.instance_id,
        protocol_type=action.protocol_type,
        protocol_name=action.protocol,
        assignments=[
            SyncGroupAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in action.assignments.items()
        ],
        assignment_error=action.assignment_error,
    )


def _leave(action: SendLeave, group_id: str) -> LeaveGroupRequest:
    """Fill the member in twice: before v3 a top-level field names it."""
    leaving = LeaveGroupMember(
        member_id=action.member_id, group_instance_id=action.instance_id, reason=action.reason
    )
    return LeaveGroupRequest(group_id=group_id, member_id=action.member_id, members=[leaving])


def _consumer_heartbeat(
    action: SendConsumerHeartbeat, group_id: str
) -> ConsumerGroupHeartbeatRequest:
    owned = None
    if action.owned is not None:
        owned = [
            ConsumerGroupTopicPartitions(topic_id=topic_id, partitions=list(numbers))
            for topic_id, numbers in action.owned.items()
        ]
    topics = action.subscribed_topics
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=action.member_id,
        member_epoch=action.member_epoch,
        instance_id=action.instance_id,
        rack_id=action.rack_id,
        rebalance_timeout_ms=action.rebalance_timeout_ms,
        subscribed_topic_names=None if topics is None else list(topics),
        subscribed_topic_regex=action.subscribed_regex,
        server_assignor=action.server_assignor,
        topic_partitions=owned,
    )


def to_event(action: MemberRequest, response: Any, at_ms: int) -> CoordinatorResponse:
    """Return the event for the coordinator's response to an action."""
    match response:
        case JoinGroupResponse():
            return _joined(action.serial, response, at_ms)
        case SyncGroupResponse():
            return SyncResponseReceived(
                at_ms=at_ms,
                serial=action.serial,
                error=to_error_code(response.error_code),
                protocol_type=response.protocol_type,
                protocol=response.protocol_name,
                assignment=bytes(response.assignment),
                assignment_error=response.assignment_error,
            )
        case HeartbeatResponse():
            return HeartbeatResponseReceived(
                at_ms=at_ms, serial=action.serial, error=to_error_code(response.error_code)
            )
        case ConsumerGroupHeartbeatResponse():
            return _consumer_heartbeat_received(action.serial, response, at_ms)
        case LeaveGroupResponse():
            return LeaveResponseReceived(at_ms=at_ms, serial=action.serial, error=_left(response))
    raise AssertionError(f"unexpected response {response} to {action}")


def _joined(serial: int, response: JoinGroupResponse, at_ms: int) -> JoinResponseReceived:
    return JoinResponseReceived(
        at_ms=at_ms,
        serial=serial,
        error=to_error_code(response.error_code),
        member_id=response.member_id,
        generation=response.generation_id,
        protocol_type=response.protocol_type,
        protocol=response.protocol_name,
        leader=response.leader,
        skip_assignment=response.skip_assignment,
        members=tuple(
            GroupMemberMetadata(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                metadata=bytes(member.metadata),
            )
            for member in response.members
        ),
    )


def _consumer_heartbeat_received(
    serial: int, response: ConsumerGroupHeartbeatResponse, at_ms: int
) -> ConsumerHeartbeatResponseReceived:
    assignment = None
    if response.assignment is not None:
        assignment = {
            bytes(topic.topic_id): tuple(topic.partitions)
            for topic in response.assignment.topic_partitions
        }
    return ConsumerHeartbeatResponseReceived(
        at_ms=at_ms,
        serial=serial,
        error=to_error_code(response.error_code),
        error_message=response.error_message,
        member_id=response.member_id,
        member_epoch=response.member_epoch,
        heartbeat_interval_ms=response.heartbeat_interval_ms,
        assignment=assignment,
    )


def _left(response: LeaveGroupResponse) -> ErrorCode:
    """Return the first error; from v3 on each member has a separate result."""
    codes = [response.error_code, *(member.error_code for member in response.members)]
    return to_error_code(next((code for code in codes if code), 0))


def to_error_code(code: int) -> ErrorCode:
    """Return the error code; unknown codes become UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
