"""Typed timer keys. Arming a key replaces its deadline; a timer that fires arrives as an event."""

from __future__ import annotations

import msgspec

from partage.statemachine.timers import TimerFacts


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


class RebalanceTimer(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The time in which a member of a consumer group must give up partitions."""

    group_id: str
    member_id: str


class ExpiryTimer(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The next check for expired offsets; one for each shard."""


TimerKey = SessionTimer | JoinTimer | SyncTimer | RebalanceTimer | ExpiryTimer

#: All uses of all timers.
TIMERS: tuple[TimerFacts[type[TimerKey]], ...] = (
    TimerFacts(
        SessionTimer,
        "a member gets a JoinGroup or SyncGroup response, heartbeats or commits; it is loaded",
        "its session timeout; not armed while it is parked and cannot send heartbeats",
        "the member is removed: a rebalance starts, or no longer waits for it",
    ),
    TimerFacts(
        SessionTimer,
        "a new member parks in its first JoinGroup",
        "{new_member_join_timeout_ms}",
        "the member is removed; its parked JoinGroup gets UNKNOWN_MEMBER_ID",
    ),
    TimerFacts(
        SessionTimer,
        "a client gets MEMBER_ID_REQUIRED, and its id is pending",
        "the session timeout that it requested",
        "the id is forgotten; the join phase no longer waits for it",
    ),
    TimerFacts(
        SessionTimer,
        "a member of a consumer group heartbeats; it is loaded",
        "`group.consumer.session.timeout.ms`, or the config of the group",
        "the member is removed, and the group epoch grows",
    ),
    TimerFacts(
        RebalanceTimer,
        "a member of a consumer group must give up partitions; it is loaded",
        "its rebalance timeout",
        "the member is removed, and the group epoch grows",
    ),
    TimerFacts(
        RebalanceTimer,
        "a member with the classic protocol in a consumer group gets a JoinGroup response, or the "
        "first REBALANCE_IN_PROGRESS",
        "its rebalance timeout; ends with SyncGroup",
        "the member is removed, and the group epoch grows",
    ),
    TimerFacts(
        JoinTimer,
        "a member joins an empty group",
        "{initial_rebalance_delay_ms}",
        "armed again if more members joined meanwhile, up to the longest rebalance timeout; "
        "otherwise the join phase ends",
    ),
    TimerFacts(
        JoinTimer,
        "a rebalance starts",
        "the longest rebalance timeout of the members",
        "the join phase ends: dynamic members that did not join are removed, static ones stay. "
        "If no member joined, the phase restarts",
    ),
    TimerFacts(
        SyncTimer,
        "a generation starts, or is loaded with its sync pending",
        "the longest rebalance timeout of the members",
        "members that did not send SyncGroup are removed, and a rebalance starts",
    ),
    TimerFacts(
        ExpiryTimer,
        "the shard is loaded, and each time it fires",
        "{offsets_retention_check_interval_ms}",
        "expired offsets are removed, and then empty groups without offsets",
    ),
)
