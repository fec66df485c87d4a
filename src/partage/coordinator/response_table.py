"""The response to each request in each group state, as the table that the handlers use.

Each row is a request; a request has several rows only where the responses differ. One column is for
a group that does not exist. A Dead group was removed from its shard, so that column covers it too.
`VALIDATIONS` lists the checks that come first and do not depend on the state. The page
``docs/groups.md`` is generated from this module.
"""

from __future__ import annotations

from enum import StrEnum

from partage.coordinator.states import GroupState
from partage.model.errors import ErrorCode


class RequestCase(StrEnum):
    """A request, divided into the cases that get different responses."""

    JOIN_NEW = "JoinGroup, no member id"
    JOIN_PENDING = "JoinGroup, pending member id"
    JOIN_LEADER = "JoinGroup, leader"
    JOIN_CHANGED = "JoinGroup, follower with changed protocols"
    JOIN_UNCHANGED = "JoinGroup, follower with the same protocols"
    SYNC_LEADER = "SyncGroup, leader"
    SYNC_FOLLOWER = "SyncGroup, follower"
    HEARTBEAT = "Heartbeat"
    LEAVE = "LeaveGroup"
    COMMIT_MEMBER = "OffsetCommit, with member and generation"
    COMMIT_SIMPLE = "OffsetCommit, without member and generation"
    TXN_COMMIT_MEMBER = "TxnOffsetCommit, with member or generation"
    TXN_COMMIT_SIMPLE = "TxnOffsetCommit, without member and generation"
    FETCH = "OffsetFetch"
    DESCRIBE = "DescribeGroups"
    DELETE = "DeleteGroups"
    DELETE_OFFSETS = "OffsetDelete"


class Response(StrEnum):
    """A response; the value describes it in the generated documentation."""

    UNKNOWN_MEMBER = "UNKNOWN_MEMBER_ID"
    REBALANCING = "REBALANCE_IN_PROGRESS"
    NOT_EMPTY = "NON_EMPTY_GROUP"
    NOT_FOUND = "GROUP_ID_NOT_FOUND"
    REFUSED_COMMIT = "GROUP_ID_NOT_FOUND; ILLEGAL_GENERATION before v9"
    ILLEGAL_GENERATION = "ILLEGAL_GENERATION"
    ALIVE = "no error; the session restarts"
    ALIVE_REBALANCING = "REBALANCE_IN_PROGRESS; the session restarts"
    CREATE = "the group is created; then as Empty"
    FIRST_JOIN = "MEMBER_ID_REQUIRED, or parked: the initial delay starts"
    NEW_JOIN = "MEMBER_ID_REQUIRED, or parked: a rebalance starts"
    NEW_PARK = "MEMBER_ID_REQUIRED, or parked"
    FIRST_REJOIN = "parked: the initial delay starts"
    PARK = "parked until the join phase ends"
    REBALANCE = "parked: a rebalance starts"
    REPEAT = "the current generation again; after loading with the sync pending: a rebalance starts"
    CURRENT = "the current generation"
    ASSIGN = "the assignments are stored, and all parked members get theirs"
    AWAIT = "parked until the leader's assignment is stored"
    ASSIGNMENT = "the stored assignment"
    LEAVE_JOINING = "removed; may end the join phase"
    LEAVE = "removed; a rebalance starts"
    COMMIT = "stored"
    COMMIT_ALIVE = "stored; the session restarts"
    PENDING = "stored as pending; the group is created if it does not exist"
    OFFSETS = "the committed offsets"
    NO_OFFSETS = "offset -1 for every partition"
    DEAD = 'state "Dead"; GROUP_ID_NOT_FOUND from v6 on'
    PLAIN = "members without their metadata"
    FULL = "members with metadata and assignment"
    DELETED = "offsets and group are removed"
    OFFSETS_DELETED = "removed"
    OFFSETS_UNUSED = (
        "consumer group: removed, or GROUP_SUBSCRIBED_TO_TOPIC; other group: NON_EMPTY_GROUP"
    )


_A = Response

#: Columns: missing, Empty, PreparingRebalance, CompletingRebalance, Stable.
_TABLE: dict[RequestCase, tuple[Response, Response, Response, Response, Response]] = {
    RequestCase.JOIN_NEW: (_A.CREATE, _A.FIRST_JOIN, _A.NEW_PARK, _A.NEW_JOIN, _A.NEW_JOIN),
    RequestCase.JOIN_PENDING: (
        _A.UNKNOWN_MEMBER,
        _A.FIRST_REJOIN,
        _A.PARK,
        _A.REBALANCE,
        _A.REBALANCE,
    ),
    RequestCase.JOIN_LEADER: (
        _A.UNKNOWN_MEMBER,
        _A.UNKNOWN_MEMBER,
        _A.PARK,
        _A.REPEAT,
        _A.REBALANCE,
    ),
    RequestCase.JOIN_CHANGED: (
        _A.UNKNOWN_MEMBER,
        _A.UNKNOWN_MEMBER,
        _A.PARK,
        _A.REBALANCE,
        _A.REBALANCE,
    ),
    RequestCase.JOIN_UNCHANGED: (
        _A.UNKNOWN_MEMBER,
        _A.UNKNOWN_MEMBER,
        _A.PARK,
        _A.REPEAT,
        _A.CURRENT,
    ),
    RequestCase.SYNC_LEADER: (
        _A.UNKNOWN_MEMBER,
        _A.UNKNOWN_MEMBER,
        _A.REBALANCING,
        _A.ASSIGN,
        _A.ASSIGNMENT,
    ),
    RequestCase.SYNC_FOLLOWER: (
        _A.UNKNOWN_MEMBER,
        _A.UNKNOWN_MEMBER,
        _A.REBALANCING,
        _A.AWAIT,
        _A.ASSIGNMENT,
    ),
    RequestCase.HEARTBEAT: (
        _A.UNKNOWN_MEMBER,
        _A.UNKNOWN_MEMBER,
        _A.ALIVE_REBALANCING,
        _A.ALIVE,
        _A.ALIVE,
    ),
    RequestCase.LEAVE: (_A.UNKNOWN_MEMBER, _A.UNKNOWN_MEMBER, _A.LEAVE_JOINING, _A.LEAVE, _A.LEAVE),
    RequestCase.COMMIT_MEMBER: (
        _A.REFUSED_COMMIT,
        _A.UNKNOWN_MEMBER,
        _A.COMMIT_ALIVE,
        _A.REBALANCING,
        _A.COMMIT_ALIVE,
    ),
    RequestCase.COMMIT_SIMPLE: (
        _A.COMMIT,
        _A.COMMIT,
        _A.UNKNOWN_MEMBER,
        _A.UNKNOWN_MEMBER,
        _A.UNKNOWN_MEMBER,
    ),
    RequestCase.TXN_COMMIT_MEMBER: (
        _A.ILLEGAL_GENERATION,
        _A.UNKNOWN_MEMBER,
        _A.PENDING,
        _A.PENDING,
        _A.PENDING,
    ),
    RequestCase.TXN_COMMIT_SIMPLE: (
        _A.PENDING,
        _A.PENDING,
        _A.PENDING,
        _A.PENDING,
        _A.PENDING,
    ),
    RequestCase.FETCH: (_A.NO_OFFSETS, _A.OFFSETS, _A.OFFSETS, _A.OFFSETS, _A.OFFSETS),
    RequestCase.DESCRIBE: (_A.DEAD, _A.PLAIN, _A.PLAIN, _A.PLAIN, _A.FULL),
    RequestCase.DELETE: (_A.NOT_FOUND, _A.DELETED, _A.NOT_EMPTY, _A.NOT_EMPTY, _A.NOT_EMPTY),
    RequestCase.DELETE_OFFSETS: (
        _A.NOT_FOUND,
        _A.OFFSETS_DELETED,
        _A.OFFSETS_UNUSED,
        _A.OFFSETS_UNUSED,
        _A.OFFSETS_UNUSED,
    ),
}

STATE_COLUMNS: tuple[GroupState | None, ...] = (
    None,
    GroupState.EMPTY,
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.STABLE,
)

RESPONSES: dict[RequestCase, dict[GroupState | None, Response]] = {
    row: dict(zip(STATE_COLUMNS, answers, strict=True)) for row, answers in _TABLE.items()
}

#: The error codes of the responses that consist of an error only.
RESPONSE_ERRORS: dict[Response, ErrorCode] = {
    Response.UNKNOWN_MEMBER: ErrorCode.UNKNOWN_MEMBER_ID,
    Response.ILLEGAL_GENERATION: ErrorCode.ILLEGAL_GENERATION,
    Response.REBALANCING: ErrorCode.REBALANCE_IN_PROGRESS,
    Response.NOT_EMPTY: ErrorCode.NON_EMPTY_GROUP,
    Response.NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
}

#: The checks before the table lookup, in order, by request.
VALIDATIONS: dict[str, tuple[str, ...]] = {
    "JoinGroup": (
        "empty group id: INVALID_GROUP_ID",
        "session timeout out of bounds: INVALID_SESSION_TIMEOUT",
        "group is full: GROUP_MAX_SIZE_REACHED, and a member in the group is removed; "
        "absent static members count",
        "different protocol type, or no common protocol: INCONSISTENT_GROUP_PROTOCOL",
        "metadata does not fit into the group's record: GROUP_MAX_SIZE_REACHED",
        "unknown instance id: UNKNOWN_MEMBER_ID; instance id of another member: FENCED_INSTANCE_ID",
        "unknown member id: UNKNOWN_MEMBER_ID",
    ),
    "SyncGroup": (
        "missing protocol type or name, from v5 on: INCONSISTENT_GROUP_PROTOCOL",
        "empty group id: INVALID_GROUP_ID",
        "instance id, then member id, as above",
        "different generation: ILLEGAL_GENERATION",
        "different protocol type or name, if stated: INCONSISTENT_GROUP_PROTOCOL",
    ),
    "Heartbeat": (
        "empty group id: INVALID_GROUP_ID",
        "instance id, then member id, as above",
        "different generation: ILLEGAL_GENERATION",
    ),
    "LeaveGroup": (
        "empty group id: INVALID_GROUP_ID",
        "for each member: an instance id alone stands for the member that has it; a pending id is "
        "forgotten; otherwise instance id, then member id, as above",
    ),
    "OffsetCommit": (
        "instance id, then member id, as above",
        "different generation, or a member that is in none yet: ILLEGAL_GENERATION",
        "for each partition: metadata too long: OFFSET_METADATA_TOO_LARGE",
    ),
    "TxnOffsetCommit": (
        "empty group id: INVALID_GROUP_ID",
        "instance id, then member id, as above",
        "different generation, or a member that is in none yet: ILLEGAL_GENERATION",
        "for each partition: metadata too long: OFFSET_METADATA_TOO_LARGE",
    ),
    "OffsetFetch": (
        "for each partition, if the client requires stable offsets: a transaction has pending "
        "offsets for it: UNSTABLE_OFFSET_COMMIT",
    ),
    "OffsetDelete": ("empty group id: INVALID_GROUP_ID",),
}
