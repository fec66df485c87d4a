"""Settings of a broker and its groups, with Kafka's names, defaults and units."""

from __future__ import annotations

import msgspec

MINUTE_MS = 60_000


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds and paces consumer groups; Kafka's broker settings ``group.*``, ``offsets.*``."""

    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 30 * MINUTE_MS
    initial_rebalance_delay_ms: int = 3_000
    #: How long a member that has never been answered may stay parked (KAFKA-7610).
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    members_max: int = 2_147_483_647
    offset_metadata_bytes_max: int = 4096
    offsets_retention_ms: int = 10_080 * MINUTE_MS
    offsets_retention_check_interval_ms: int = 10 * MINUTE_MS


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one client, and all together, may ask of a broker."""

    request_bytes_max: int = 100 * 1024 * 1024  # socket.request.max.bytes
    #: For the requests of groups and administrators, which are never as large as a Produce.
    control_request_bytes_max: int = 16 * 1024 * 1024
    requests_in_flight_max: int = 100
    connections_max: int = 100_000
    idle_max_ms: int = 10 * MINUTE_MS

    def bytes_max(self, api_key: int) -> int:
        """The largest frame that an API may send."""
        is_produce = api_key == 0
        return self.request_bytes_max if is_produce else self.control_request_bytes_max
