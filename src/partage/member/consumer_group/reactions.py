"""The reactions of a member with the consumer group protocol to each response.

The member acts on this table, and ``docs/members.md`` is generated from it.
"""

from __future__ import annotations

from enum import Enum, StrEnum

from partage.model.errors import ErrorCode


class ConsumerGroupRequest(StrEnum):
    """The requests whose responses the table covers."""

    FIND = "FindCoordinator"
    JOIN = "heartbeat that joins"
    HEARTBEAT = "other heartbeat"
    COMMIT = "OffsetCommit"


class HeartbeatReaction(Enum):
    """A reaction; its value describes it."""

    CONTINUE = "continues"
    RETRY = "sends a full heartbeat after a back-off"
    FIND_COORDINATOR = "looks up the coordinator again, after a back-off"
    LOSE_MEMBERSHIP = "loses its partitions; joins again with epoch 0"
    REPORT = "reports the error, and sends a full heartbeat after a back-off"
    FAIL = "loses its partitions; the error is fatal"
    CHECK = "sends a heartbeat at once"
    IGNORE = "nothing: the caller handles it"


_E = ErrorCode
_R = HeartbeatReaction

_HEARTBEAT: dict[ErrorCode, HeartbeatReaction] = {
    _E.NONE: _R.CONTINUE,
    _E.COORDINATOR_LOAD_IN_PROGRESS: _R.RETRY,
    _E.COORDINATOR_NOT_AVAILABLE: _R.FIND_COORDINATOR,
    _E.NOT_COORDINATOR: _R.FIND_COORDINATOR,
    _E.REQUEST_TIMED_OUT: _R.RETRY,
    _E.TOPIC_AUTHORIZATION_FAILED: _R.REPORT,
    _E.GROUP_AUTHORIZATION_FAILED: _R.FAIL,
    _E.INVALID_GROUP_ID: _R.FAIL,
    _E.INVALID_REQUEST: _R.FAIL,
    _E.GROUP_MAX_SIZE_REACHED: _R.FAIL,
    _E.FENCED_INSTANCE_ID: _R.FAIL,
    _E.UNRELEASED_INSTANCE_ID: _R.FAIL,
    _E.UNSUPPORTED_ASSIGNOR: _R.FAIL,
    _E.INVALID_REGULAR_EXPRESSION: _R.FAIL,
    _E.UNSUPPORTED_VERSION: _R.FAIL,
}

CONSUMER_REACTIONS: dict[ConsumerGroupRequest, dict[ErrorCode, HeartbeatReaction]] = {
    ConsumerGroupRequest.FIND: {
        _E.NONE: _R.CONTINUE,
        _E.GROUP_AUTHORIZATION_FAILED: _R.FAIL,
        _E.INVALID_GROUP_ID: _R.FAIL,
        _E.UNSUPPORTED_VERSION: _R.FAIL,
    },
    ConsumerGroupRequest.JOIN: _HEARTBEAT
    | {
        _E.UNKNOWN_MEMBER_ID: _R.RETRY,
        _E.FENCED_MEMBER_EPOCH: _R.RETRY,
        # the group has another protocol, and the broker does not convert it
        _E.GROUP_ID_NOT_FOUND: _R.FAIL,
    },
    ConsumerGroupRequest.HEARTBEAT: _HEARTBEAT
    | {
        _E.UNKNOWN_MEMBER_ID: _R.LOSE_MEMBERSHIP,
        _E.FENCED_MEMBER_EPOCH: _R.LOSE_MEMBERSHIP,
        # the coordinator lost the group; joining creates it again
        _E.GROUP_ID_NOT_FOUND: _R.LOSE_MEMBERSHIP,
    },
    ConsumerGroupRequest.COMMIT: {
        _E.NONE: _R.CONTINUE,
        _E.COORDINATOR_NOT_AVAILABLE: _R.FIND_COORDINATOR,
        _E.NOT_COORDINATOR: _R.FIND_COORDINATOR,
        _E.REQUEST_TIMED_OUT: _R.FIND_COORDINATOR,
        _E.STALE_MEMBER_EPOCH: _R.CHECK,
        _E.UNKNOWN_MEMBER_ID: _R.CHECK,
        _E.FENCED_INSTANCE_ID: _R.CHECK,
        _E.GROUP_ID_NOT_FOUND: _R.CHECK,
    },
}

#: Reactions to errors that the table does not name.
DEFAULT_CONSUMER_REACTIONS: dict[ConsumerGroupRequest, HeartbeatReaction] = {
    ConsumerGroupRequest.FIND: _R.FIND_COORDINATOR,
    ConsumerGroupRequest.JOIN: _R.FAIL,
    ConsumerGroupRequest.HEARTBEAT: _R.FAIL,
    ConsumerGroupRequest.COMMIT: _R.IGNORE,
}

#: Errors after which the coordinator has no member to remove, so a leave is useless.
NOT_IN_GROUP_ERRORS = frozenset(
    {
        _E.FENCED_INSTANCE_ID,
        _E.UNRELEASED_INSTANCE_ID,
        _E.GROUP_MAX_SIZE_REACHED,
        _E.GROUP_AUTHORIZATION_FAILED,
        _E.GROUP_ID_NOT_FOUND,
        _E.INVALID_GROUP_ID,
        _E.UNSUPPORTED_VERSION,
    }
)


def heartbeat_reaction(request: ConsumerGroupRequest, error: ErrorCode) -> HeartbeatReaction:
    """Return the reaction to ``error`` in a response to ``request``."""
    return CONSUMER_REACTIONS[request].get(error, DEFAULT_CONSUMER_REACTIONS[request])
