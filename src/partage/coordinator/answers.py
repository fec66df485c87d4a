"""The response to each request in each group state, as the table that the handlers use.

Each row is a request; a request has several rows only where the responses differ. One column is for
a group that does not exist. A Dead group was removed from its shard, so that column covers it too.
`VALIDATIONS` lists the checks that come first and do not depend on the state. The page
``docs/groups.md`` is generated from this module.
"""

from __future__ import annotations

from enum import Enum, StrEnum

from partage.coordinator.states import GroupState
from partage.model.errors import ErrorCode


class Row(StrEnum):
    """A request, divided into the cases that get different responses."""

    JOIN_NEW = "JoinGroup, no member id"
    JOIN_PENDING = "JoinGroup, id given out before"
    JOIN_LEADER = "JoinGroup, the leader"
    JOIN_CHANGED = "JoinGroup, a follower whose protocols changed"
    JOIN_SAME = "JoinGroup, a follower as it was"
    SYNC_LEADER = "SyncGroup, the leader"
    SYNC_FOLLOWER = "SyncGroup, a follower"
    HEARTBEAT = "Heartbeat"
    LEAVE = "LeaveGroup"
    COMMIT_MEMBER = "OffsetCommit, with member and generation"
    COMMIT_SIMPLE = "OffsetCommit, without"
    FETCH = "OffsetFetch"
    DESCRIBE = "DescribeGroups"
    DELETE = "DeleteGroups"
    DELETE_OFFSETS = "OffsetDelete"


class Answer(Enum):
    """A response; the value describes it in the generated documentation."""

    UNKNOWN_MEMBER = "UNKNOWN_MEMBER_ID"
    REBALANCING = "REBALANCE_IN_PROGRESS"
    NOT_EMPTY = "NON_EMPTY_GROUP"
    NOT_FOUND = "GROUP_ID_NOT_FOUND"
    REFUSED_COMMIT = "GROUP_ID_NOT_FOUND; ILLEGAL_GENERATION before v9"
    ALIVE = "no error; the session begins anew"
    ALIVE_REBALANCING = "REBALANCE_IN_PROGRESS; the session begins anew"
    CREATE = "the group is made; then as Empty"
    FIRST_JOIN = "MEMBER_ID_REQUIRED, or parked: the initial delay begins"
    NEW_JOIN = "MEMBER_ID_REQUIRED, or parked: a rebalance begins"
    NEW_PARK = "MEMBER_ID_REQUIRED, or parked"
    FIRST_REJOIN = "parked: the initial delay begins"
    PARK = "parked until the join phase is over"
    REBALANCE = "parked: a rebalance begins"
    REPEAT = "the present generation again; in a group loaded before its sync: a rebalance begins"
    CURRENT = "the present generation"
    ASSIGN = "the assignments are stored, all who wait get theirs"
    AWAIT = "parked until the leader's assignment is stored"
    ASSIGNMENT = "the stored assignment"
    LEAVE_JOINING = "gone; may end the join phase"
    LEAVE = "gone; a rebalance begins"
    COMMIT = "stored"
    COMMIT_ALIVE = "stored; the session begins anew"
    OFFSETS = "what is committed"
    NO_OFFSETS = "offset -1 for every partition"
    DEAD = 'state "Dead"; GROUP_ID_NOT_FOUND from v6 on'
    PLAIN = "members without their metadata"
    FULL = "members with metadata and assignment"
    DELETED = "offsets and group are removed"
    OFFSETS_DELETED = "removed"
    OFFSETS_UNUSED = (
        "consumers: removed, GROUP_SUBSCRIBED_TO_TOPIC for topics in use; others: NON_EMPTY_GROUP"
    )


_A = Answer

#: Columns: missing, Empty, PreparingRebalance, CompletingRebalance, Stable.
_TABLE: dict[Row, tuple[Answer, Answer, Answer, Answer, Answer]] = {
    Row.JOIN_NEW: (_A.CREATE, _A.FIRST_JOIN, _A.NEW_PARK, _A.NEW_JOIN, _A.NEW_JOIN),
    Row.JOIN_PENDING: (
        _A.UNKNOWN_MEMBER,
        _A.FIRST_REJOIN,
        _A.PARK,
        _A.REBALANCE,
        _A.REBALANCE,
    ),
    Row.JOIN_LEADER: (_A.UNKNOWN_MEMBER, _A.UNKNOWN_MEMBER, _A.PARK, _A.REPEAT, _A.REBALANCE),
    Row.JOIN_CHANGED: (_A.UNKNOWN_MEMBER, _A.UNKNOWN_MEMBER, _A.PARK, _A.REBALANCE, _A.REBALANCE),
    Row.JOIN_SAME: (_A.UNKNOWN_MEMBER, _A.UNKNOWN_MEMBER, _A.PARK, _A.REPEAT, _A.CURRENT),
    Row.SYNC_LEADER: (
        _A.UNKNOWN_MEMBER,
        _A.UNKNOWN_MEMBER,
        _A.REBALANCING,
        _A.ASSIGN,
        _A.ASSIGNMENT,
    ),
    Row.SYNC_FOLLOWER: (
        _A.UNKNOWN_MEMBER,
        _A.UNKNOWN_MEMBER,
        _A.REBALANCING,
        _A.AWAIT,
        _A.ASSIGNMENT,
    ),
    Row.HEARTBEAT: (
        _A.UNKNOWN_MEMBER,
        _A.UNKNOWN_MEMBER,
        _A.ALIVE_REBALANCING,
        _A.ALIVE,
        _A.ALIVE,
    ),
    Row.LEAVE: (_A.UNKNOWN_MEMBER, _A.UNKNOWN_MEMBER, _A.LEAVE_JOINING, _A.LEAVE, _A.LEAVE),
    Row.COMMIT_MEMBER: (
        _A.REFUSED_COMMIT,
        _A.UNKNOWN_MEMBER,
        _A.COMMIT_ALIVE,
        _A.REBALANCING,
        _A.COMMIT_ALIVE,
    ),
    Row.COMMIT_SIMPLE: (
        _A.COMMIT,
        _A.COMMIT,
        _A.UNKNOWN_MEMBER,
        _A.UNKNOWN_MEMBER,
        _A.UNKNOWN_MEMBER,
    ),
    Row.FETCH: (_A.NO_OFFSETS, _A.OFFSETS, _A.OFFSETS, _A.OFFSETS, _A.OFFSETS),
    Row.DESCRIBE: (_A.DEAD, _A.PLAIN, _A.PLAIN, _A.PLAIN, _A.FULL),
    Row.DELETE: (_A.NOT_FOUND, _A.DELETED, _A.NOT_EMPTY, _A.NOT_EMPTY, _A.NOT_EMPTY),
    Row.DELETE_OFFSETS: (
        _A.NOT_FOUND,
        _A.OFFSETS_DELETED,
        _A.OFFSETS_UNUSED,
        _A.OFFSETS_UNUSED,
        _A.OFFSETS_UNUSED,
    ),
}

COLUMNS: tuple[GroupState | None, ...] = (
    None,
    GroupState.EMPTY,
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.STABLE,
)

ANSWERS: dict[Row, dict[GroupState | None, Answer]] = {
    row: dict(zip(COLUMNS, answers, strict=True)) for row, answers in _TABLE.items()
}

#: The error codes of the responses that consist of an error only.
ERRORS: dict[Answer, ErrorCode] = {
    Answer.UNKNOWN_MEMBER: ErrorCode.UNKNOWN_MEMBER_ID,
    Answer.REBALANCING: ErrorCode.REBALANCE_IN_PROGRESS,
    Answer.NOT_EMPTY: ErrorCode.NON_EMPTY_GROUP,
    Answer.NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
}

#: The checks before the table lookup, in order, by request.
CHECKS: dict[str, tuple[str, ...]] = {
    "JoinGroup": (
        "empty group id: INVALID_GROUP_ID",
        "session timeout out of bounds: INVALID_SESSION_TIMEOUT",
        "group is full: GROUP_MAX_SIZE_REACHED, and the member is not, or no longer, in the group; "
        "static members hold their places while they are away",
        "another protocol type, or no protocol in common: INCONSISTENT_GROUP_PROTOCOL",
        "more metadata than the group's record has room for: GROUP_MAX_SIZE_REACHED",
        "instance id unknown: UNKNOWN_MEMBER_ID; held by another member: FENCED_INSTANCE_ID",
        "member id unknown: UNKNOWN_MEMBER_ID",
    ),
    "SyncGroup": (
        "no protocol type or no name, from v5 on: INCONSISTENT_GROUP_PROTOCOL",
        "empty group id: INVALID_GROUP_ID",
        "instance id, then member id, as above",
        "another generation: ILLEGAL_GENERATION",
        "another protocol type or name, where the client says one: INCONSISTENT_GROUP_PROTOCOL",
    ),
    "Heartbeat": (
        "empty group id: INVALID_GROUP_ID",
        "instance id, then member id, as above",
        "another generation: ILLEGAL_GENERATION",
    ),
    "LeaveGroup": (
        "empty group id: INVALID_GROUP_ID",
        "each member for itself: an instance id alone names its holder, a pending id is forgotten, "
        "else instance id, then member id, as above",
    ),
    "OffsetCommit": (
        "instance id, then member id, as above",
        "another generation, or a member that is in none yet: ILLEGAL_GENERATION",
        "each partition for itself: metadata too long: OFFSET_METADATA_TOO_LARGE",
    ),
    "OffsetDelete": ("empty group id: INVALID_GROUP_ID",),
}
