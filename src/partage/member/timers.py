"""A member's timers: arming one replaces it, a fired one comes back as an event."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Timer(StrEnum):
    """The key of a timer; a member has one of each."""

    HEARTBEAT = "heartbeat"
    SESSION = "session"
    POLL = "poll"
    RETRY = "retry"
    REQUEST = "request"
    METADATA = "metadata"


class TimerFacts(msgspec.Struct, frozen=True, gc=False):
    """One use of a timer, in words; ``delay`` may name a field of the settings in braces."""

    key: Timer
    armed: str
    delay: str
    fires: str


#: Every use of every timer.
TIMERS: tuple[TimerFacts, ...] = (
    TimerFacts(
        Timer.HEARTBEAT,
        "the member is in a generation and no JoinGroup or SyncGroup of its is under way",
        "a sixteenth of {heartbeat_interval_ms} after a rebalance, then twice as long each time, "
        "up to all of it",
        "a heartbeat is sent, unless the last one is not answered yet",
    ),
    TimerFacts(
        Timer.SESSION,
        "as the heartbeat timer; anew when a JoinGroup or SyncGroup is answered, and when a "
        "heartbeat is, counted from when that was sent",
        "{session_timeout_ms}",
        "the coordinator may have dropped the member: nothing is delivered until it is heard "
        "from, and it is looked for anew",
    ),
    TimerFacts(
        Timer.POLL,
        "poll returns, in a member that has to be polled",
        "max_poll_interval_ms",
        "what is owned is lost, LeaveGroup is sent (not by a static member), and the next poll "
        "joins anew",
    ),
    TimerFacts(
        Timer.RETRY,
        "something failed that may heal",
        "{retry_backoff_ms}, twice as long each time, up to {retry_backoff_max_ms}",
        "it is tried again",
    ),
    TimerFacts(
        Timer.REQUEST,
        "JoinGroup or SyncGroup is sent",
        "the longer of rebalance and session timeout and {parked_lapse_ms}, at least "
        "{request_timeout_ms}",
        "the coordinator is looked for anew, and the member joins again",
    ),
    TimerFacts(
        Timer.REQUEST,
        "LeaveGroup is sent",
        "{request_timeout_ms}",
        "the member is out, whatever the coordinator heard",
    ),
    TimerFacts(
        Timer.METADATA,
        "topics have changed, of what the member leads or what its pattern matches, and nothing "
        "was gathered before; cancelled when it joins for another reason",
        "metadata_rebalance_delay_ms; not at all if that is 0",
        "the member joins again for all that has changed by then",
    ),
)
