"""JoinGroup, SyncGroup and LeaveGroup: the fields of each version, in both directions."""

from __future__ import annotations

import msgspec
import pytest

from partage.coordinator.events import Join, Leave, LeavingMember, Protocol, Sync
from partage.coordinator.replies import JoinedMember, JoinReply, LeaveReply, SyncReply
from partage.model.errors import ErrorCode
from partage.wire.apis.join_group import (
    JOIN_GROUP,
    JoinGroupMember,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
)
from partage.wire.apis.leave_group import (
    LEAVE_GROUP,
    LeaveGroupMember,
    LeaveGroupMemberResult,
    LeaveGroupRequest,
    LeaveGroupResponse,
)
from partage.wire.apis.sync_group import (
    SYNC_GROUP,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)

from .bridge_calls import (
    FRESH_ID,
    NOW_MS,
    event_of,
    new_shard,
    response_to,
    serve,
    start_call,
    versions,
)

every_join = pytest.mark.parametrize("version", versions(JOIN_GROUP))
every_sync = pytest.mark.parametrize("version", versions(SYNC_GROUP))
every_leave = pytest.mark.parametrize("version", versions(LEAVE_GROUP))

JOIN = JoinGroupRequest(
    group_id="g",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=60_000,
    member_id="m",
    group_instance_id="i",
    protocol_type="consumer",
    protocols=[
        JoinGroupProtocol(name="range", metadata=b"\x00r"),
        JoinGroupProtocol(name="sticky", metadata=b""),
    ],
    reason="because",
)

# JoinGroup.


@every_join
@pytest.mark.parametrize("stated", [3, 0, -1, -9])
def test_join_group_protocol_version(version: int, stated: int) -> None:
    protocol = JoinGroupProtocol(name="range", metadata=b"", protocol_version=stated)
    event = event_of(JOIN_GROUP, version, msgspec.structs.replace(JOIN, protocols=[protocol]))
    heard = max(stated, -1) if version >= 6 else -1
    assert event.protocols == (Protocol("range", b"", heard),)


@every_join
def test_join_group_event(version: int) -> None:
    event = event_of(JOIN_GROUP, version, JOIN)
    is_static = version >= 5
    assert msgspec.structs.replace(event, reply_to=None) == Join(
        at_ms=NOW_MS,
        reply_to=None,
        group_id="g",
        member_id="m",
        generated_member_id=f"i-{FRESH_ID}" if is_static else f"client-{FRESH_ID}",
        instance_id="i" if is_static else None,
        client_id="client",
        client_host="/127.0.0.1",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000 if version >= 1 else -1,
        protocol_type="consumer",
        protocols=(Protocol("range", b"\x00r"), Protocol("sticky", b"")),
        reason="because" if version >= 8 else None,
        must_rejoin_with_id=version >= 4,
        may_skip_assignment=version >= 9,
    )


@every_join
def test_join_group_leader_response(version: int) -> None:
    reply = JoinReply(
        member_id="m",
        generation=3,
        protocol_type="consumer",
        protocol="range",
        leader="m",
        skip_assignment=True,
        members=(JoinedMember("m", "i", b"\x00r"), JoinedMember("n", None, b"")),
    )
    assert response_to(JOIN_GROUP, version, JOIN, reply) == JoinGroupResponse(
        error_code=0,
        generation_id=3,
        protocol_type="consumer" if version >= 7 else None,
        protocol_name="range",
        leader="m",
        skip_assignment=version >= 9,
        member_id="m",
        members=[
            JoinGroupMember(
                member_id="m", group_instance_id="i" if version >= 5 else None, metadata=b"\x00r"
            ),
            JoinGroupMember(member_id="n", group_instance_id=None, metadata=b""),
        ],
    )


@every_join
def test_join_group_error_has_id_without_generation(version: int) -> None:
    reply = JoinReply(error=ErrorCode.MEMBER_ID_REQUIRED, member_id="m")
    response = response_to(JOIN_GROUP, version, JOIN, reply)
    assert (response.error_code, response.member_id) == (79, "m")
    assert (response.generation_id, response.leader, response.members) == (-1, "", [])
    # Before v7 the protocol name cannot be null.
    assert response.protocol_name == (None if version >= 7 else "")


@every_join
def test_join_group_v4_must_rejoin_with_id(version: int) -> None:
    request = msgspec.structs.replace(JOIN, member_id="", group_instance_id=None)
    call, (event,) = start_call(JOIN_GROUP, version, request)
    replies = new_shard().handle(event).replies
    if version < 4:
        assert replies == []  # parked
    else:
        ((ticket, reply),) = replies
        assert ticket is call
        assert (reply.error, reply.member_id) == (79, f"client-{FRESH_ID}")


@pytest.mark.parametrize("name", ["n" * 32_767, "\N{GRINNING FACE}" * 8_000, ""])
def test_member_id_from_long_client_id_is_short(name: str) -> None:
    """The id begins with the client id, which may be as long as any string."""
    request = msgspec.structs.replace(JOIN, group_instance_id=name)
    fresh = event_of(JOIN_GROUP, 5, request).generated_member_id
    assert fresh == f"{name[:255]}-{FRESH_ID}"
    reply = JoinReply(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=fresh)
    for version in versions(JOIN_GROUP):
        assert response_to(JOIN_GROUP, version, JOIN, reply).member_id == fresh


def test_instance_id_empty_differs_from_null() -> None:
    for instance_id in (None, ""):
        request = msgspec.structs.replace(JOIN, group_instance_id=instance_id)
        assert event_of(JOIN_GROUP, 9, request).instance_id == instance_id


# SyncGroup.

SYNC = SyncGroupRequest(
    group_id="g",
    generation_id=3,
    member_id="m",
    group_instance_id="i",
    protocol_type="consumer",
    protocol_name="range",
    assignments=[
        SyncGroupAssignment(member_id="m", assignment=b"\x00m"),
        SyncGroupAssignment(member_id="n", assignment=b""),
    ],
    assignment_error="why not",
)


@every_sync
def test_sync_group_event(version: int) -> None:
    event = event_of(SYNC_GROUP, version, SYNC)
    assert msgspec.structs.replace(event, reply_to=None) == Sync(
        at_ms=NOW_MS,
        reply_to=None,
        group_id="g",
        generation=3,
        member_id="m",
        instance_id="i" if version >= 3 else None,
        protocol_type="consumer" if version >= 5 else None,
        protocol="range" if version >= 5 else None,
        assignments={"m": b"\x00m", "n": b""},
        assignment_error="why not" if version >= 4 else None,
    )


@every_sync
def test_sync_group_response(version: int) -> None:
    reply = SyncReply(protocol_type="consumer", protocol="range", assignment=b"\x00m")
    assert response_to(SYNC_GROUP, version, SYNC, reply) == SyncGroupResponse(
        error_code=0,
        protocol_type="consumer" if version >= 5 else None,
        protocol_name="range" if version >= 5 else None,
        assignment=b"\x00m",
    )


@every_sync
def test_sync_group_assignment_error(version: int) -> None:
    """The reason is in a tagged field; every client gets the error code."""
    reply = SyncReply(error=ErrorCode.REBALANCE_IN_PROGRESS, assignment_error="why not")
    response = response_to(SYNC_GROUP, version, SYNC, reply)
    assert (response.error_code, response.assignment) == (27, b"")
    assert response.assignment_error == ("why not" if version >= 4 else None)


@every_sync
@pytest.mark.parametrize("unnamed", ["protocol_type", "protocol_name"])
def test_sync_group_v5_without_protocol_rejected(version: int, unnamed: str) -> None:
    """KIP-559: from v5 on the coordinator gets no event."""
    request = msgspec.structs.replace(SYNC, **{unnamed: None})
    call, events = start_call(SYNC_GROUP, version, request)
    assert len(events) == (0 if version >= 5 else 1)
    if not events:
        response = SYNC_GROUP.decode_response(version, b"".join(call.encode_response()))
        assert response == SyncGroupResponse(error_code=23, assignment=b"")


def test_sync_group_duplicate_assignment_last_wins() -> None:
    twice = [SyncGroupAssignment(member_id="m", assignment=share) for share in (b"1", b"2")]
    request = msgspec.structs.replace(SYNC, assignments=twice)
    assert event_of(SYNC_GROUP, 5, request).assignments == {"m": b"2"}


# LeaveGroup.

LEAVING = LeaveGroupRequest(
    group_id="g",
    member_id="m",
    members=[
        LeaveGroupMember(member_id="a", reason="tired"),
        LeaveGroupMember(member_id="", group_instance_id="i"),
    ],
)


@every_leave
def test_leave_group_event(version: int) -> None:
    event = event_of(LEAVE_GROUP, version, LEAVING)
    several = (
        LeavingMember(member_id="a", reason="tired" if version >= 5 else None),
        LeavingMember(member_id="", instance_id="i"),
    )
    assert msgspec.structs.replace(event, reply_to=None) == Leave(
        at_ms=NOW_MS,
        reply_to=None,
        group_id="g",
        members=several if version >= 3 else (LeavingMember(member_id="m"),),
    )


@every_leave
def test_leave_group_error_for_each_member(version: int) -> None:
    """Before v3 the error of the single member is that of the request."""
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    errors = (unknown, ErrorCode.NONE) if version >= 3 else (unknown,)
    response = response_to(LEAVE_GROUP, version, LEAVING, LeaveReply(errors=errors))
    if version < 3:
        assert response == LeaveGroupResponse(error_code=25)
    else:
        assert response == LeaveGroupResponse(
            error_code=0,
            members=[
                LeaveGroupMemberResult(member_id="a", group_instance_id=None, error_code=25),
                LeaveGroupMemberResult(member_id="", group_instance_id="i", error_code=0),
            ],
        )


@every_leave
def test_leave_group_group_error_at_top_level(version: int) -> None:
    request = msgspec.structs.replace(LEAVING, group_id="")
    response = serve(new_shard(), LEAVE_GROUP, version, request)
    assert response == LeaveGroupResponse(error_code=24)


@every_leave
def test_leave_group_missing_group_unknown_members(version: int) -> None:
    response = serve(new_shard(), LEAVE_GROUP, version, LEAVING)
    assert response.error_code == (0 if version >= 3 else 25)
    assert [m.error_code for m in response.members] == ([25, 25] if version >= 3 else [])


@pytest.mark.parametrize("version", [3, 4, 5])
def test_leave_group_without_members_is_empty(version: int) -> None:
    request = msgspec.structs.replace(LEAVING, members=[])
    assert serve(new_shard(), LEAVE_GROUP, version, request) == LeaveGroupResponse(error_code=0)
    nameless = msgspec.structs.replace(request, group_id="")
    assert serve(new_shard(), LEAVE_GROUP, version, nameless) == LeaveGroupResponse(error_code=24)
