"""The checks of a ConsumerGroupHeartbeat that need no group, in Kafka's order."""

from __future__ import annotations

from partage.coordinator.consumer_group.events import ConsumerGroupHeartbeat
from partage.coordinator.consumer_group.member import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from partage.coordinator.consumer_group.replies import ConsumerGroupHeartbeatReply
from partage.model.errors import ErrorCode
from partage.model.settings import ConsumerGroupSettings


def invalid_heartbeat(
    event: ConsumerGroupHeartbeat, settings: ConsumerGroupSettings
) -> ConsumerGroupHeartbeatReply | None:
    """Return the reply to an invalid heartbeat, or None if the heartbeat is valid."""
    message = _invalid_request(event)
    if message is not None:
        return heartbeat_error(ErrorCode.INVALID_REQUEST, message)
    if event.server_assignor is not None and event.server_assignor not in settings.assignors:
        return heartbeat_error(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {event.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(settings.assignors)}.",
        )
    if event.regex_error is not None:
        return heartbeat_error(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{event.subscribed_regex}` is not a valid regular expression: "
            f"{event.regex_error}.",
        )
    return None


def _invalid_request(event: ConsumerGroupHeartbeat) -> str | None:
    epoch = event.member_epoch
    needs_member_id = not event.may_generate_id or epoch > 0 or epoch == LEAVE_EPOCH
    if needs_member_id and not event.member_id.strip(_JAVA_SPACES):
        return "MemberId can't be empty."
    if not event.group_id.strip(_JAVA_SPACES):
        return "GroupId can't be empty."
    if event.instance_id is not None and not event.instance_id.strip(_JAVA_SPACES):
        return "InstanceId can't be empty."
    if event.rack_id is not None and not event.rack_id.strip(_JAVA_SPACES):
        return "RackId can't be empty."
    if epoch > 0 or epoch == LEAVE_EPOCH:
        return None
    if epoch == 0:
        if event.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs must be provided in first request."
        if event.owned is None or any(event.owned.values()):
            return "TopicPartitions must be empty when (re-)joining."
        if event.subscribed_topics is None and event.subscribed_regex is None:
            return (
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
        return None
    if epoch == STATIC_LEAVE_EPOCH:
        return "InstanceId can't be null." if event.instance_id is None else None
    return "MemberEpoch is invalid."


#: The characters that Java's `String.trim` removes.
_JAVA_SPACES = "".join(map(chr, range(0x21)))


def heartbeat_error(error: ErrorCode, message: str) -> ConsumerGroupHeartbeatReply:
    """Return the reply to a heartbeat that is refused."""
    return ConsumerGroupHeartbeatReply(error=error, error_message=message)
