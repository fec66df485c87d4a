"""Timers are typed keys: arming one replaces it, a fired one comes back as an event."""

from __future__ import annotations

import msgspec


class SessionTimer(msgspec.Struct, frozen=True, cache_hash=True):
    """A member's session, or the patience with a pending or never answered one."""

    group_id: str
    member_id: str


class JoinTimer(msgspec.Struct, frozen=True, cache_hash=True):
    """The end of a group's join phase, or of its initial delay."""

    group_id: str


class SyncTimer(msgspec.Struct, frozen=True, cache_hash=True):
    """The end of the time that members have to ask for their assignment."""

    group_id: str


class ExpiryTimer(msgspec.Struct, frozen=True, cache_hash=True):
    """The next look for offsets whose retention has passed; one a shard."""


TimerKey = SessionTimer | JoinTimer | SyncTimer | ExpiryTimer
