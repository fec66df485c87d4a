"""Settings of a coordinator and of a member."""

from __future__ import annotations

import msgspec


class CoordinatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the coordinator.

    Attributes:
        session_timeout_min_ms: The shortest session timeout of a member.
        session_timeout_max_ms: The longest one.
        initial_rebalance_delay_ms: How long an empty group waits for further members.
        synchronize_timeout_ms: How long the coordinator waits for the assignment of one member, if
            that member's request does not say it.
        offsets_retention_ms: How long a group without members keeps its offsets, as Kafka's
            ``offsets.retention.minutes``. A group without offsets is removed earlier.
        metadata_bytes_max: The metadata of all members of all groups together. The coordinator
            refuses a member that would exceed it.
    """

    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    synchronize_timeout_ms: int = 10_000
    offsets_retention_ms: int = 604_800_000
    metadata_bytes_max: int = 256 << 20


class DesignMemberSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a member, in ms.

    ``join_timeout_ms`` is how long the member waits for the response to JoinGroup. The coordinator
    delays it at most for the longest session timeout in the group and the synchronize timeout.
    ``heartbeat_interval_ms`` is at most half of ``session_timeout_ms``.
    """

    group_id: str
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    commit_interval_ms: int = 5_000
    retry_backoff_ms: int = 100
    synchronize_timeout_ms: int = 10_000
    join_timeout_ms: int = 300_000
