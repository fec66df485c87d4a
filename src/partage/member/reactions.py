"""The reactions of a member to each response: the table that it acts on.

A response counts only while the member waits for it. Responses from an earlier generation or from a
closed connection are ignored. ``docs/members.md`` is generated from this module.
"""

from __future__ import annotations

from enum import Enum, StrEnum

from partage.model.errors import ErrorCode


class CoordinatorRequest(StrEnum):
    """The requests whose responses the table covers."""

    FIND = "FindCoordinator"
    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    COMMIT = "OffsetCommit"


class Reaction(Enum):
    """A reaction; its value describes it."""

    CONTINUE = "continues"
    REJOIN_WITH_ID = "takes the given member id, and rejoins with it at once"
    REJOIN = "rejoins at once"
    REJOIN_AFTER_BACKOFF = "rejoins after a back-off"
    FIND_COORDINATOR = "looks up the coordinator again, after a back-off"
    LOSE_GENERATION = "loses its partitions; rejoins with its member id"
    LOSE_MEMBERSHIP = "loses its partitions; rejoins without a member id"
    REBALANCE = "extends its session; rejoins, unless it does already"
    RETRY_AFTER_BACKOFF = "retries after a back-off"
    FAIL = "loses its partitions; the error is fatal"
    IGNORE = "nothing: the caller handles it"


_E = ErrorCode
_R = Reaction

REACTIONS: dict[CoordinatorRequest, dict[ErrorCode, Reaction]] = {
    CoordinatorRequest.FIND: {
        _E.NONE: _R.CONTINUE,
        _E.GROUP_AUTHORIZATION_FAILED: _R.FAIL,
        _E.INVALID_GROUP_ID: _R.FAIL,
        _E.UNSUPPORTED_VERSION: _R.FAIL,
    },
    CoordinatorRequest.JOIN: {
        _E.NONE: _R.CONTINUE,
        _E.MEMBER_ID_REQUIRED: _R.REJOIN_WITH_ID,  # KIP-394
        _E.REBALANCE_IN_PROGRESS: _R.REJOIN,
        _E.COORDINATOR_LOAD_IN_PROGRESS: _R.REJOIN_AFTER_BACKOFF,
        _E.COORDINATOR_NOT_AVAILABLE: _R.FIND_COORDINATOR,
        _E.NOT_COORDINATOR: _R.FIND_COORDINATOR,
        _E.UNKNOWN_MEMBER_ID: _R.LOSE_MEMBERSHIP,
        _E.FENCED_INSTANCE_ID: _R.FAIL,  # KIP-345
        _E.INCONSISTENT_GROUP_PROTOCOL: _R.FAIL,
        _E.INVALID_SESSION_TIMEOUT: _R.FAIL,
        _E.INVALID_GROUP_ID: _R.FAIL,
        _E.GROUP_AUTHORIZATION_FAILED: _R.FAIL,
        _E.GROUP_MAX_SIZE_REACHED: _R.FAIL,
        _E.UNSUPPORTED_VERSION: _R.FAIL,
    },
    CoordinatorRequest.SYNC: {
        _E.NONE: _R.CONTINUE,
        _E.REBALANCE_IN_PROGRESS: _R.REJOIN,
        # A coordinator that is loading may not know the sync. One of Kafka's always does.
        _E.COORDINATOR_LOAD_IN_PROGRESS: _R.REJOIN_AFTER_BACKOFF,
        _E.COORDINATOR_NOT_AVAILABLE: _R.FIND_COORDINATOR,
        _E.NOT_COORDINATOR: _R.FIND_COORDINATOR,
        _E.ILLEGAL_GENERATION: _R.LOSE_GENERATION,
        _E.UNKNOWN_MEMBER_ID: _R.LOSE_MEMBERSHIP,
        _E.FENCED_INSTANCE_ID: _R.FAIL,
        _E.INCONSISTENT_GROUP_PROTOCOL: _R.FAIL,
        _E.GROUP_AUTHORIZATION_FAILED: _R.FAIL,
    },
    CoordinatorRequest.HEARTBEAT: {
        _E.NONE: _R.CONTINUE,
        _E.REBALANCE_IN_PROGRESS: _R.REBALANCE,
        _E.COORDINATOR_LOAD_IN_PROGRESS: _R.RETRY_AFTER_BACKOFF,
        _E.COORDINATOR_NOT_AVAILABLE: _R.FIND_COORDINATOR,
        _E.NOT_COORDINATOR: _R.FIND_COORDINATOR,
        _E.ILLEGAL_GENERATION: _R.LOSE_GENERATION,
        _E.UNKNOWN_MEMBER_ID: _R.LOSE_MEMBERSHIP,
        _E.FENCED_INSTANCE_ID: _R.FAIL,
        _E.GROUP_AUTHORIZATION_FAILED: _R.FAIL,
    },
    CoordinatorRequest.COMMIT: {
        _E.NONE: _R.CONTINUE,
        _E.REBALANCE_IN_PROGRESS: _R.REBALANCE,
        _E.COORDINATOR_NOT_AVAILABLE: _R.FIND_COORDINATOR,
        _E.NOT_COORDINATOR: _R.FIND_COORDINATOR,
        _E.REQUEST_TIMED_OUT: _R.FIND_COORDINATOR,
        _E.ILLEGAL_GENERATION: _R.LOSE_GENERATION,
        _E.UNKNOWN_MEMBER_ID: _R.LOSE_MEMBERSHIP,
        _E.FENCED_INSTANCE_ID: _R.FAIL,
    },
}

#: Reactions to errors that the table does not name.
DEFAULT_REACTIONS: dict[CoordinatorRequest, Reaction] = {
    CoordinatorRequest.FIND: _R.FIND_COORDINATOR,
    CoordinatorRequest.JOIN: _R.FAIL,
    CoordinatorRequest.SYNC: _R.FAIL,
    CoordinatorRequest.HEARTBEAT: _R.RETRY_AFTER_BACKOFF,
    CoordinatorRequest.COMMIT: _R.IGNORE,
}

#: Errors after which the coordinator has no member to remove, so LeaveGroup is useless.
NOT_A_MEMBER_ERRORS = frozenset(
    {
        _E.FENCED_INSTANCE_ID,
        _E.GROUP_MAX_SIZE_REACHED,
        _E.GROUP_AUTHORIZATION_FAILED,
        _E.INVALID_GROUP_ID,
    }
)


def reaction_to(request: CoordinatorRequest, error: ErrorCode) -> Reaction:
    """Return the reaction to ``error`` in a response to ``request``."""
    return REACTIONS[request].get(error, DEFAULT_REACTIONS[request])
