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
    #: What the members of a group may bring together: with their assignments, which take no more
    #: than a request, it must fit into a segment of 100 MiB.
    group_bytes_max: int = 64 * 1024 * 1024
    offset_metadata_bytes_max: int = 4096
    offsets_retention_ms: int = 10_080 * MINUTE_MS
    offsets_retention_check_interval_ms: int = 10 * MINUTE_MS


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one client, and all together, may ask of a broker."""

    request_bytes_max: int = 100 * 1024 * 1024  # socket.request.max.bytes
    #: For the requests of groups and administrators, which are never as large as a Produce.
    control_request_bytes_max: int = 16 * 1024 * 1024
    requests_in_flight_max: int = 100
    #: All requests above 64 KiB together, from their arrival until they are served; then no more
    #: of them are read. queued.max.request.bytes, which Kafka leaves open.
    requests_bytes_max: int = 256 * 1024 * 1024
    #: All answers that clients are slow to read; beyond it a Fetch is answered with less.
    responses_bytes_max: int = 256 * 1024 * 1024
    connections_max: int = 100_000
    idle_max_ms: int = 10 * MINUTE_MS

    def bytes_max(self, api_key: int) -> int:
        """The largest frame that an API may send."""
        is_produce = api_key == 0
        return self.request_bytes_max if is_produce else self.control_request_bytes_max


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a broker that is not where it listens and where it keeps its data."""

    node_id: int = 1
    rack: str | None = None
    auto_create_topics: bool = True
    partitions_default: int = 1
    #: The most that one Fetch is answered with, a first batch that is larger apart.
    fetch_bytes_max: int = 55 * 1024 * 1024
    offsets_partitions: int = 50
    syncs: bool = True
    retention_check_interval_ms: int = 5 * MINUTE_MS
    #: Of several brokers: after so long without a sign of one, others take its groups over.
    zookeeper_session_timeout_ms: int = 6_000
    #: Whether the connection to ZooKeeper is TLS; files in PEM of whom to trust there, the system's
    #: authorities where there is none, and of key and certificate if it wants to see one.
    zookeeper_tls: bool = False
    zookeeper_truststore: str | None = None
    zookeeper_keystore: str | None = None
    #: Whether what happens in groups is told in the topic ``__group_events``.
    group_events: bool = True
    #: How often their lag is told there, if it has changed; 0 for never.
    group_lag_interval_ms: int = 10_000
    #: Topic configs for topics that do not say otherwise, checked, by their topic names.
    topic_defaults: dict[str, str] = {}
    groups: GroupSettings = GroupSettings()
    limits: ConnectionLimits = ConnectionLimits()


#: Kafka's names of broker settings, each with the field it sets: of the broker, or of a part.
#: Those that begin with ``partage.`` are our own.
KAFKA_NAMES: dict[str, tuple[str | None, str]] = {
    "node.id": (None, "node_id"),
    "broker.id": (None, "node_id"),
    "broker.rack": (None, "rack"),
    "auto.create.topics.enable": (None, "auto_create_topics"),
    "num.partitions": (None, "partitions_default"),
    "fetch.max.bytes": (None, "fetch_bytes_max"),
    "offsets.topic.num.partitions": (None, "offsets_partitions"),
    "log.retention.check.interval.ms": (None, "retention_check_interval_ms"),
    "zookeeper.session.timeout.ms": (None, "zookeeper_session_timeout_ms"),
    "zookeeper.ssl.client.enable": (None, "zookeeper_tls"),
    "zookeeper.ssl.truststore.location": (None, "zookeeper_truststore"),
    "zookeeper.ssl.keystore.location": (None, "zookeeper_keystore"),
    "group.min.session.timeout.ms": ("groups", "session_timeout_min_ms"),
    "group.max.session.timeout.ms": ("groups", "session_timeout_max_ms"),
    "group.initial.rebalance.delay.ms": ("groups", "initial_rebalance_delay_ms"),
    "group.max.size": ("groups", "members_max"),
    "offset.metadata.max.bytes": ("groups", "offset_metadata_bytes_max"),
    "offsets.retention.check.interval.ms": ("groups", "offsets_retention_check_interval_ms"),
    "socket.request.max.bytes": ("limits", "request_bytes_max"),
    "queued.max.request.bytes": ("limits", "requests_bytes_max"),
    "max.connections": ("limits", "connections_max"),
    "connections.max.idle.ms": ("limits", "idle_max_ms"),
    "partage.group.events.enable": (None, "group_events"),
    "partage.group.events.lag.interval.ms": (None, "group_lag_interval_ms"),
}
#: Broker settings that Kafka counts in minutes or hours, with the field and the factor to ms.
KAFKA_NAMES_SCALED: dict[str, tuple[str, str, int]] = {
    "offsets.retention.minutes": ("groups", "offsets_retention_ms", MINUTE_MS),
}

INT32_MAX = 2_147_483_647
#: The least and the most that a setting may be; 0 to `INT32_MAX` where nothing is said.
RANGES: dict[str, tuple[int, int]] = {
    "num.partitions": (1, 10_000),
    "offsets.topic.num.partitions": (1, 10_000),
    "fetch.max.bytes": (1024, INT32_MAX),
    "log.retention.check.interval.ms": (1, 2**53),
    "group.max.size": (1, INT32_MAX),
    "offsets.retention.minutes": (1, INT32_MAX),
    "offsets.retention.check.interval.ms": (1, 2**53),
    "socket.request.max.bytes": (1024, INT32_MAX),
    "queued.max.request.bytes": (1, 2**53),
    "connections.max.idle.ms": (1, 2**53),
    "zookeeper.session.timeout.ms": (500, INT32_MAX),
}
