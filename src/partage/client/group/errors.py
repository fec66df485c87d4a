"""Exceptions of group members, in addition to those of all clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from partage.client.errors import ClientError, error_name
from partage.member.outcome import Problem
from partage.member.settings import MemberSettings
from partage.model.errors import ErrorCode


class GroupError(ClientError):
    """The base class of exceptions that only group members raise."""


class CoordinatorNotConnectedError(GroupError):
    """Raised if the connection to the coordinator was lost; the client reconnects."""

    is_retriable = True

    def __init__(self, group_id: str) -> None:
        super().__init__(f"not connected to the coordinator of group {group_id!r}")


class CommitFailedError(GroupError):
    """Raised if offsets were not committed; the message has the reason and the consequence."""

    def __init__(self, why: str, code: int | None = None) -> None:
        super().__init__(f"the offsets were not committed: {why}")
        self.code = code


class MaxPollExceededError(GroupError):
    """Raised after ``max_poll_interval_ms`` passed without a poll; the partitions were lost."""


class AssignmentFailedError(GroupError):
    """Raised if the group's leader could not assign; no member owns partitions until it can."""


class SubscriptionRefusedError(GroupError):
    """Raised if the user may not read a subscribed topic; the member keeps trying."""


#: The errors that polls raise for problems of a member.
PROBLEM_ERRORS: Final[Mapping[Problem, type[GroupError]]] = {
    Problem.ASSIGNMENT_FAILED: AssignmentFailedError,
    Problem.POLL_TIMEOUT: MaxPollExceededError,
    Problem.SUBSCRIPTION_REFUSED: SubscriptionRefusedError,
}


class MemberFailedError(GroupError):
    """Raised if a fatal error ended the membership; ``code`` is Kafka's error code."""

    def __init__(self, group_id: str, code: int, reason: str) -> None:
        advice = _ADVICE.get(code, "")
        action = f" {advice}" if advice else ""
        story = reason.removesuffix(".")  # brokers end some of their messages with one
        super().__init__(f"group {group_id!r}: {error_name(code)}: {story}.{action}")
        self.code = code


class NotSubscribedError(GroupError):
    """Raised if an operation needs a subscription or an assignment and there is none."""


class MissingGroupIdError(GroupError, ValueError):
    """Raised if an operation needs a ``group_id`` and the consumer has none."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} needs a consumer group: set group_id")


class NotAMemberError(GroupError):
    """Raised if the membership was not started, or is closed."""

    def __init__(self, group_id: str) -> None:
        super().__init__(
            f"the membership of group {group_id!r} is not started, or is already closed; "
            "use `async with` or start()"
        )


_ADVICE: dict[int, str] = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "The group has another protocol type, or no assignor "
    "is common to all members: use an assignor that the other members have, or another group_id.",
    ErrorCode.FENCED_INSTANCE_ID: "Another process has the same group_instance_id: use a different "
    "one in each process, and stop the older process.",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "The group has as many members as the broker allows "
    "(group.max.size).",
    ErrorCode.INVALID_SESSION_TIMEOUT: "session_timeout_ms must be within the broker's "
    "group.min.session.timeout.ms and group.max.session.timeout.ms.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "This user has no Read permission on the group.",
    ErrorCode.INVALID_GROUP_ID: "The broker does not accept this group_id.",
    ErrorCode.UNRELEASED_INSTANCE_ID: "Another member with the same group_instance_id has not left "
    "the group: stop it, or wait until its session ends (group.consumer.session.timeout.ms).",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "The broker does not have the assignor of "
    "group_remote_assignor: use one of its group.consumer.assignors.",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "A SubscriptionPattern must be valid in the syntax of "
    "RE2, which has no back references and no look-arounds.",
    ErrorCode.UNSUPPORTED_VERSION: "The broker does not support the consumer group protocol, its "
    "group.version is 0, or its group.coordinator.rebalance.protocols excludes it: use "
    "group_protocol='classic' or 'auto'.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group has members with the classic protocol, or another "
    "type, and the broker does not convert it: use group_protocol='classic', or another group_id.",
}


_REBALANCING: Final = (
    "the group is rebalancing: poll(), then commit the partitions that are still assigned"
)


def not_in_generation_reason(settings: MemberSettings, away_ms: int) -> str:
    """Return the reason why a member without a generation cannot commit.

    ``away_ms`` is the time since its last poll.
    """
    longest_ms = settings.max_poll_interval_ms
    if longest_ms is not None and away_ms >= longest_ms:
        return (
            f"the last poll was {away_ms} ms ago, longer than max_poll_interval_ms ({longest_ms}), "
            "so the partitions went to other members. Poll more often, return fewer records per "
            "poll (max_poll_records), or raise max_poll_interval_ms"
        )
    return _REBALANCING


def fenced_commit_reason(
    code: ErrorCode, settings: MemberSettings, away_ms: int, *, is_in_group: bool
) -> str:
    """Return the reason why the coordinator refused a commit.

    Args:
        code: The error code of the commit.
        settings: The settings of the member.
        away_ms: The time since the last poll.
        is_in_group: False if the member has lost its partitions.
    """
    match code:
        case ErrorCode.ILLEGAL_GENERATION if is_in_group:
            return _REBALANCING
        case ErrorCode.FENCED_INSTANCE_ID:
            return (
                f"another process uses group_instance_id {settings.instance_id!r}: stop one of "
                "the two"
            )
        case ErrorCode.UNKNOWN_MEMBER_ID:
            return (
                "the coordinator removed this member: it received no heartbeat for "
                f"session_timeout_ms ({settings.session_timeout_ms}), or the group was deleted; "
                f"the last poll was {away_ms} ms ago. Its partitions go to other members"
            )
        case ErrorCode.REBALANCE_IN_PROGRESS:
            return _REBALANCING
        case _:
            return "the group has rebalanced without this member: poll() to rejoin"
