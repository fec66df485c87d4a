"""The timers of a member. Arming one replaces its deadline; it fires as a `TimerFired` event."""

from __future__ import annotations

from enum import StrEnum

from partage.statemachine.timers import TimerFacts


class MemberTimer(StrEnum):
    """The key of a timer. A member has at most one timer of each key."""

    HEARTBEAT = "heartbeat"
    SESSION = "session"
    POLL = "poll"
    RETRY = "retry"
    REQUEST = "request"
    METADATA = "metadata"


#: Every use of every timer.
TIMERS: tuple[TimerFacts[MemberTimer], ...] = (
    TimerFacts(
        MemberTimer.HEARTBEAT,
        "the member is in a generation, and has no JoinGroup or SyncGroup in flight",
        "a sixteenth of {heartbeat_interval_ms} after a rebalance, doubled after each heartbeat, "
        "at most {heartbeat_interval_ms}",
        "the member sends a heartbeat, unless the last one is unanswered",
    ),
    TimerFacts(
        MemberTimer.SESSION,
        "as the heartbeat timer; again at each response to JoinGroup or SyncGroup, and to a "
        "heartbeat, counted from the time when the heartbeat was sent",
        "{session_timeout_ms}",
        "the coordinator may have removed the member: the member delivers no records until the "
        "coordinator responds, and looks up the coordinator again",
    ),
    TimerFacts(
        MemberTimer.POLL,
        "poll returns, for a member that must be polled",
        "max_poll_interval_ms",
        "the member loses its partitions, sends LeaveGroup (unless it is static), and rejoins at "
        "the next poll",
    ),
    TimerFacts(
        MemberTimer.RETRY,
        "a retriable operation failed",
        "{retry_backoff_ms}, doubled each time, at most {retry_backoff_max_ms}",
        "the member retries",
    ),
    TimerFacts(
        MemberTimer.REQUEST,
        "JoinGroup or SyncGroup is sent",
        "the longer of rebalance and session timeout and {parked_request_grace_ms}, at least "
        "{request_timeout_ms}",
        "the member looks up the coordinator again, and rejoins",
    ),
    TimerFacts(
        MemberTimer.REQUEST,
        "LeaveGroup is sent",
        "{request_timeout_ms}",
        "the leave is complete, even without a response",
    ),
    TimerFacts(
        MemberTimer.METADATA,
        "topics changed for which the member is the leader, or which its pattern matches, and no "
        "change was pending; cancelled when the member joins for another reason",
        "metadata_rebalance_delay_ms; not armed if that is 0",
        "the member rejoins once for all changes until then",
    ),
)
