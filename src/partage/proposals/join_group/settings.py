"""Settings of a coordinator and of a member."""

from __future__ import annotations

import msgspec


class CoordinatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the coordinator, in ms.

    ``initial_rebalance_delay_ms`` is how long an empty group waits for further members.
    ``synchronize_timeout_ms`` is how long the coordinator waits for the assignment of one member,
    if that member's request does not say it.
    """

    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    synchronize_timeout_ms: int = 10_000


class MemberSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a member, in ms."""

    group_id: str
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    commit_interval_ms: int = 5_000
    retry_backoff_ms: int = 100
    synchronize_timeout_ms: int = 10_000
