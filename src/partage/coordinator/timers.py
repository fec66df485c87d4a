"""Typed timer keys. Arming a key replaces its deadline; a timer that fires arrives as an event."""

from __future__ import annotations

import msgspec


class SessionTimer(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The session of a member, or the time limit of a pending or new one."""

    group_id: str
    member_id: str


class JoinTimer(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The end of a group's join phase, or of its initial delay."""

    group_id: str


class SyncTimer(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The end of the time in which members must send SyncGroup."""

    group_id: str


class ExpiryTimer(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The next check for expired offsets; one for each shard."""


TimerKey = SessionTimer | JoinTimer | SyncTimer | ExpiryTimer


class TimerFacts(msgspec.Struct, frozen=True, gc=False):
    """One use of a timer, as text. ``delay`` may name a field of the settings in braces."""

    key: type[TimerKey]
    armed: str
    delay: str
    fires: str


#: All uses of all timers.
TIMERS: tuple[TimerFacts, ...] = (
    TimerFacts(
        SessionTimer,
        "a member is answered a JoinGroup or SyncGroup, heartbeats or commits; it is loaded",
        "its session timeout; but not while it is parked, for then it cannot heartbeat",
        "the member is gone: a rebalance begins, or need not wait for it",
    ),
    TimerFacts(
        SessionTimer,
        "a new member parks in its first JoinGroup",
        "{new_member_join_timeout_ms}",
        "it is gone; if its client still waits it is told UNKNOWN_MEMBER_ID",
    ),
    TimerFacts(
        SessionTimer,
        "a client is told MEMBER_ID_REQUIRED, and is pending",
        "the session timeout that it asked for",
        "its member id is forgotten; the join phase need not wait for it",
    ),
    TimerFacts(
        JoinTimer,
        "somebody joins an empty group",
        "{initial_rebalance_delay_ms}",
        "as long as others came meanwhile the same again, up to the longest rebalance timeout; "
        "then the join phase ends",
    ),
    TimerFacts(
        JoinTimer,
        "a rebalance begins",
        "the longest rebalance timeout of the members",
        "the join phase ends: dynamic members that did not join are dropped, static ones stay. "
        "If nobody joined the phase begins anew",
    ),
    TimerFacts(
        SyncTimer,
        "a generation begins, or is loaded while its sync is awaited",
        "the longest rebalance timeout of the members",
        "members that did not ask for their assignment are dropped, and a rebalance begins",
    ),
    TimerFacts(
        ExpiryTimer,
        "the shard is loaded, and each time it has fired",
        "{offsets_retention_check_interval_ms}",
        "offsets whose retention has passed go, and groups of which nothing is left",
    ),
)
