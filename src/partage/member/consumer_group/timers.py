"""The uses of the timers of a member with the consumer group protocol."""

from __future__ import annotations

from partage.member.timers import MemberTimer
from partage.statemachine.timers import TimerFacts

#: Every use of every timer.
CONSUMER_TIMERS: tuple[TimerFacts[MemberTimer], ...] = (
    TimerFacts(
        MemberTimer.HEARTBEAT,
        "a heartbeat is accepted, and no other one is due",
        "the interval that the coordinator sent, counted from the heartbeat; at most a third of "
        "the session timer",
        "the member sends a heartbeat",
    ),
    TimerFacts(
        MemberTimer.SESSION,
        "a heartbeat is accepted, counted from the time when it was sent",
        "{session_timeout_ms}; while the member must revoke partitions, at most "
        "max_poll_interval_ms since the last heartbeat before",
        "the coordinator may have removed the member: the member delivers no records until the "
        "coordinator accepts a heartbeat",
    ),
    TimerFacts(
        MemberTimer.POLL,
        "poll returns, for a member that must be polled",
        "max_poll_interval_ms",
        "the member loses its partitions and leaves; it joins again at the next poll, unless leave "
        "is requested",
    ),
    TimerFacts(
        MemberTimer.RETRY,
        "a retriable operation failed",
        "{retry_backoff_ms}, doubled each time, at most {retry_backoff_max_ms}",
        "the member retries",
    ),
    TimerFacts(
        MemberTimer.REQUEST,
        "the partitions of a member that leaves are given up, and a last heartbeat is needed",
        "{request_timeout_ms}",
        "the leave is complete, even without a coordinator or a response",
    ),
    TimerFacts(
        MemberTimer.METADATA,
        "the metadata lacks the id of an assigned topic",
        "{retry_backoff_max_ms}",
        "the member asks for the names of the topics again",
    ),
)
