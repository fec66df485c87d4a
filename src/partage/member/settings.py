"""Settings of a member, with Kafka's names, defaults and units."""

from __future__ import annotations

import msgspec


class MemberSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The identity and the timeouts of a member."""

    group_id: str
    protocol_type: str
    instance_id: str | None = None  # group.instance.id: a static member (KIP-345)
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    #: Time that the group waits for this member to rejoin. Kafka's consumers use
    #: ``max.poll.interval.ms`` for it, its Connect workers ``rebalance.timeout.ms``.
    rebalance_timeout_ms: int = 300_000
    #: Time for which topic changes are collected before the member rejoins for all of them. Kafka
    #: has no such option: its consumers rejoin at once.
    metadata_rebalance_delay_ms: int = 0
    #: Maximum time between polls; None for a member that is not polled.
    max_poll_interval_ms: int | None = None
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    #: Time that a parked request may take beyond the rebalance timeout.
    parked_request_grace_ms: int = 5_000
