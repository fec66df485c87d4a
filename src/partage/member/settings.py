"""Settings of a member, with Kafka's names, defaults and units."""

from __future__ import annotations

import msgspec


class MemberSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which group, as whom, and how patiently."""

    group_id: str
    protocol_type: str
    instance_id: str | None = None  # group.instance.id: a static member (KIP-345)
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    #: How long the group waits for this member to join again. Kafka's consumers take
    #: ``max.poll.interval.ms`` for it, its Connect workers ``rebalance.timeout.ms``.
    rebalance_timeout_ms: int = 300_000
    #: How long changes of topics are gathered before the member joins again for all of them. Kafka
    #: has no such option: its consumers join again at once.
    metadata_rebalance_delay_ms: int = 0
    #: How long a consumer may stay away from ``poll``; None for a member that is not polled.
    max_poll_interval_ms: int | None = None
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    #: How much longer than the rebalance timeout the answer to a request that parks may take.
    parked_lapse_ms: int = 5_000
