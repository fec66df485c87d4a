"""The checks before the response table, and their order."""

from __future__ import annotations

import msgspec
import pytest

from partage.coordinator.events import (
    LeavingMember,
    OffsetToCommit,
    Protocol,
    TransactionalCommit,
)
from partage.coordinator.replies import FetchOffsetsReply
from partage.coordinator.response_table import VALIDATIONS, RequestCase
from partage.coordinator.states import GroupState
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings

from .fixtures import ASK, GroupFixture
from .trace import Request

#: Each request with all possible faults at once. Then, in order, the error that results and the
#: change that removes this fault.
Faults = tuple[dict[str, object], list[tuple[ErrorCode, dict[str, object]]]]

STRANGER = {"member_id": "nobody", "instance_id": "nobody"}

FAULTS: dict[str, tuple[RequestCase, Faults]] = {
    "JoinGroup": (
        RequestCase.JOIN_UNCHANGED,
        (
            {
                **STRANGER,
                "group_id": "",
                "session_timeout_ms": 1,
                "protocols": (Protocol("unheard of", b""),),
            },
            [
                (ErrorCode.INVALID_GROUP_ID, {"group_id": "g"}),
                (ErrorCode.INVALID_SESSION_TIMEOUT, {"session_timeout_ms": 10_000}),
                (ErrorCode.GROUP_MAX_SIZE_REACHED, {"member_id": "b-1"}),
                (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, {"protocols": (Protocol("range", b"t"),)}),
                (ErrorCode.UNKNOWN_MEMBER_ID, {"instance_id": None}),
            ],
        ),
    ),
    "SyncGroup": (
        RequestCase.SYNC_FOLLOWER,
        (
            {**STRANGER, "group_id": "", "generation": 9, "protocol": "unheard of"},
            [
                (ErrorCode.INVALID_GROUP_ID, {"group_id": "g"}),
                (ErrorCode.UNKNOWN_MEMBER_ID, {"instance_id": None}),
                (ErrorCode.UNKNOWN_MEMBER_ID, {"member_id": "b-1"}),
                (ErrorCode.ILLEGAL_GENERATION, {"generation": 1}),
                (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, {"protocol": "range"}),
            ],
        ),
    ),
    "Heartbeat": (
        RequestCase.HEARTBEAT,
        (
            {**STRANGER, "group_id": "", "generation": 9},
            [
                (ErrorCode.INVALID_GROUP_ID, {"group_id": "g"}),
                (ErrorCode.UNKNOWN_MEMBER_ID, {"instance_id": None}),
                (ErrorCode.UNKNOWN_MEMBER_ID, {"member_id": "b-1"}),
                (ErrorCode.ILLEGAL_GENERATION, {"generation": 1}),
            ],
        ),
    ),
    "LeaveGroup": (
        RequestCase.LEAVE,
        (
            {"group_id": "", "members": (LeavingMember(member_id="nobody"),)},
            [
                (ErrorCode.INVALID_GROUP_ID, {"group_id": "g"}),
                (ErrorCode.UNKNOWN_MEMBER_ID, {"members": (LeavingMember(member_id="b-1"),)}),
            ],
        ),
    ),
    "OffsetCommit": (
        RequestCase.COMMIT_MEMBER,
        (
            {
                **STRANGER,
                "generation": 9,
                "offsets": (
                    OffsetToCommit(topic="t", partition=0, offset=1, metadata="x" * 4_097),
                ),
            },
            [
                (ErrorCode.UNKNOWN_MEMBER_ID, {"instance_id": None}),
                (ErrorCode.UNKNOWN_MEMBER_ID, {"member_id": "b-1"}),
                (ErrorCode.ILLEGAL_GENERATION, {"generation": 1}),
                (
                    ErrorCode.OFFSET_METADATA_TOO_LARGE,
                    {"offsets": (OffsetToCommit(topic="t", partition=0, offset=1),)},
                ),
            ],
        ),
    ),
    "TxnOffsetCommit": (
        RequestCase.TXN_COMMIT_MEMBER,
        (
            {
                **STRANGER,
                "group_id": "",
                "generation": 9,
                "offsets": (
                    OffsetToCommit(topic="t", partition=0, offset=1, metadata="x" * 4_097),
                ),
            },
            [
                (ErrorCode.INVALID_GROUP_ID, {"group_id": "g"}),
                (ErrorCode.UNKNOWN_MEMBER_ID, {"instance_id": None}),
                (ErrorCode.UNKNOWN_MEMBER_ID, {"member_id": "b-1"}),
                (ErrorCode.ILLEGAL_GENERATION, {"generation": 1}),
                (
                    ErrorCode.OFFSET_METADATA_TOO_LARGE,
                    {"offsets": (OffsetToCommit(topic="t", partition=0, offset=1),)},
                ),
            ],
        ),
    ),
    "OffsetFetch": (
        RequestCase.FETCH,
        (
            {"requires_stable": True, "partitions": (("v", 0),)},
            [(ErrorCode.UNSTABLE_OFFSET_COMMIT, {"requires_stable": False})],
        ),
    ),
    "OffsetDelete": (
        RequestCase.DELETE_OFFSETS,
        (
            {"group_id": "", "partitions": (("u", 0),)},
            [(ErrorCode.INVALID_GROUP_ID, {"group_id": "g"})],
        ),
    ),
}


def errors_of(stage: GroupFixture, event: Request) -> set[ErrorCode]:
    reply = stage.harness.answer_to(event)
    assert reply is not None
    if isinstance(reply, FetchOffsetsReply) and reply.unstable:
        return {ErrorCode.UNSTABLE_OFFSET_COMMIT}
    error = getattr(reply, "error", ErrorCode.NONE)
    return {error} if error else set(getattr(reply, "errors", (error,)))


@pytest.mark.parametrize("request_name", VALIDATIONS)
def test_first_failed_check_determines_error(request_name: str) -> None:
    row, (faults, mended) = FAULTS[request_name]
    stage = GroupFixture(GroupState.STABLE, settings=GroupSettings(members_max=2))
    stage.harness.handle(
        TransactionalCommit(
            **stage.words(),
            producer_id=1,
            producer_epoch=0,
            offsets=(OffsetToCommit(topic="v", partition=0, offset=1),),
        )
    )
    stage.logged = len(stage.harness.log.durable)
    event = msgspec.structs.replace(ASK[row](stage), **faults)
    for error, mending in mended:
        asked = msgspec.structs.replace(event, reply_to=stage.harness.ticket())
        assert errors_of(stage, asked) == {error}
        assert stage.written() == []
        event = msgspec.structs.replace(event, **mending)
    assert errors_of(stage, event) == {ErrorCode.NONE}
