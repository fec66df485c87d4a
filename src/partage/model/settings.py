"""Settings of a broker and its groups, with Kafka's names, defaults and units."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from partage.model.arguments import INT32_MAX

MINUTE_MS = 60_000


class MigrationPolicy(StrEnum):
    """The allowed online migrations between classic and consumer groups, in Kafka's words."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"


class ConsumerGroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and intervals of groups with the consumer protocol; Kafka's ``group.consumer.*``."""

    session_timeout_ms: int = 45_000
    session_timeout_min_ms: int = 45_000  # limits of the config of one group
    session_timeout_max_ms: int = 60_000
    heartbeat_interval_ms: int = 5_000
    heartbeat_interval_min_ms: int = 5_000
    heartbeat_interval_max_ms: int = 15_000
    members_max: int = 2_147_483_647
    #: The names of the assignors; the first one is the default.
    assignors: tuple[str, ...] = ("uniform", "range")
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    assignment_interval_ms: int = 1_000  # the least time between two target assignments
    assignment_interval_min_ms: int = 0
    assignment_interval_max_ms: int = 15_000
    regex_refresh_interval_ms: int = 10 * MINUTE_MS


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and intervals of consumer groups; Kafka's broker settings ``group.*`` and
    ``offsets.*``.
    """

    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 30 * MINUTE_MS
    initial_rebalance_delay_ms: int = 3_000
    #: The protocols of groups; without ``consumer``, requests of this protocol are refused.
    rebalance_protocols: tuple[str, ...] = ("classic", "consumer")
    #: How long the Join of a member without any reply may stay parked (KAFKA-7610).
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    members_max: int = 2_147_483_647
    #: The maximum size of the metadata of a group's members together. With their assignments, which
    #: are no larger than a request, it must fit into a segment of 100 MiB.
    group_bytes_max: int = 64 * 1024 * 1024
    offset_metadata_bytes_max: int = 4096
    offsets_retention_ms: int = 10_080 * MINUTE_MS
    offsets_retention_check_interval_ms: int = 10 * MINUTE_MS
    consumer: ConsumerGroupSettings = ConsumerGroupSettings()


class TransactionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and intervals of transactions; Kafka's broker settings ``transaction.*``."""

    partitions: int = 50  # of __transaction_state, when it is created
    timeout_max_ms: int = 15 * MINUTE_MS
    id_expiration_ms: int = 10_080 * MINUTE_MS
    abort_check_interval_ms: int = 10_000
    expiry_check_interval_ms: int = 60 * MINUTE_MS
    is_verification_enabled: bool = True  # of partitions, for transaction versions 0 and 1


#: A buffer size that leaves the buffers of sockets to the operating system.
SYSTEM_BUFFER = -1


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the requests of one client, and of all clients together."""

    request_bytes_max: int = 100 * 1024 * 1024  # socket.request.max.bytes
    #: For all requests except Produce; group and administration requests are never as large.
    control_request_bytes_max: int = 16 * 1024 * 1024
    requests_in_flight_max: int = 100
    #: The maximum total size of requests above 64 KiB that have arrived and have no response. At
    #: the limit the broker stops reading such requests. Kafka's queued.max.request.bytes, which has
    #: no limit by default.
    requests_bytes_max: int = 256 * 1024 * 1024
    #: The maximum total size of responses that clients have not read; above it a Fetch returns
    #: less.
    responses_bytes_max: int = 256 * 1024 * 1024
    #: The send buffer of each socket, at most ``net.core.wmem_max`` of Linux. Responses in a buffer
    #: that grows, as it does by default, are no longer in the caches of the CPU when the client
    #: receives them: over the loopback interface, large fetches of four connections then take half
    #: as long again. Kafka has 102,400 here.
    send_buffer_bytes: int = 256 * 1024  # socket.send.buffer.bytes
    connections_max: int = 100_000
    idle_max_ms: int = 10 * MINUTE_MS

    def frame_bytes_max(self, api_key: int) -> int:
        """Return the largest frame that an API may send, in bytes."""
        is_produce = api_key == 0
        return self.request_bytes_max if is_produce else self.control_request_bytes_max


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a broker, except for its listeners and its data directory."""

    node_id: int = 1
    rack: str | None = None
    auto_create_topics: bool = True
    partitions_default: int = 1
    #: The maximum size of a Fetch response; a larger first batch is still returned.
    fetch_bytes_max: int = 55 * 1024 * 1024
    offsets_partitions: int = 50
    is_fsync_enabled: bool = True
    retention_check_interval_ms: int = 5 * MINUTE_MS
    #: The pause between two searches for logs to compact.
    cleaner_backoff_ms: int = 15_000
    #: Session timeout in a cluster: after it, other brokers take over the groups of a dead broker.
    zookeeper_session_timeout_ms: int = 6_000
    #: True to connect to ZooKeeper with TLS. The files are in PEM: trusted certificates (the
    #: system's if None), and the key and certificate, if the servers ask for one.
    zookeeper_tls: bool = False
    zookeeper_truststore: str | None = None
    zookeeper_keystore: str | None = None
    #: True to publish group events in the topic ``__group_events``.
    group_events: bool = True
    #: The interval at which changed lag is published there, in ms; 0 for never.
    group_lag_interval_ms: int = 10_000
    #: Validated defaults of topic configs, by the name of the topic config.
    topic_defaults: dict[str, str] = {}
    groups: GroupSettings = GroupSettings()
    transactions: TransactionSettings = TransactionSettings()
    limits: ConnectionLimits = ConnectionLimits()


#: Kafka's names of broker settings, each with the part and the field it sets. A dot separates a
#: part of a part. Names with the prefix
#: ``partage.`` are not Kafka's.
KAFKA_NAMES: dict[str, tuple[str | None, str]] = {
    "node.id": (None, "node_id"),
    "broker.id": (None, "node_id"),
    "broker.rack": (None, "rack"),
    "auto.create.topics.enable": (None, "auto_create_topics"),
    "num.partitions": (None, "partitions_default"),
    "fetch.max.bytes": (None, "fetch_bytes_max"),
    "offsets.topic.num.partitions": (None, "offsets_partitions"),
    "log.retention.check.interval.ms": (None, "retention_check_interval_ms"),
    "log.cleaner.backoff.ms": (None, "cleaner_backoff_ms"),
    "zookeeper.session.timeout.ms": (None, "zookeeper_session_timeout_ms"),
    "zookeeper.ssl.client.enable": (None, "zookeeper_tls"),
    "zookeeper.ssl.truststore.location": (None, "zookeeper_truststore"),
    "zookeeper.ssl.keystore.location": (None, "zookeeper_keystore"),
    "group.min.session.timeout.ms": ("groups", "session_timeout_min_ms"),
    "group.max.session.timeout.ms": ("groups", "session_timeout_max_ms"),
    "group.initial.rebalance.delay.ms": ("groups", "initial_rebalance_delay_ms"),
    "group.coordinator.rebalance.protocols": ("groups", "rebalance_protocols"),
    "group.max.size": ("groups", "members_max"),
    "group.consumer.session.timeout.ms": ("groups.consumer", "session_timeout_ms"),
    "group.consumer.min.session.timeout.ms": ("groups.consumer", "session_timeout_min_ms"),
    "group.consumer.max.session.timeout.ms": ("groups.consumer", "session_timeout_max_ms"),
    "group.consumer.heartbeat.interval.ms": ("groups.consumer", "heartbeat_interval_ms"),
    "group.consumer.min.heartbeat.interval.ms": ("groups.consumer", "heartbeat_interval_min_ms"),
    "group.consumer.max.heartbeat.interval.ms": ("groups.consumer", "heartbeat_interval_max_ms"),
    "group.consumer.max.size": ("groups.consumer", "members_max"),
    "group.consumer.assignors": ("groups.consumer", "assignors"),
    "group.consumer.migration.policy": ("groups.consumer", "migration_policy"),
    "group.consumer.assignment.interval.ms": ("groups.consumer", "assignment_interval_ms"),
    "group.consumer.min.assignment.interval.ms": ("groups.consumer", "assignment_interval_min_ms"),
    "group.consumer.max.assignment.interval.ms": ("groups.consumer", "assignment_interval_max_ms"),
    "group.consumer.regex.refresh.interval.ms": ("groups.consumer", "regex_refresh_interval_ms"),
    "offset.metadata.max.bytes": ("groups", "offset_metadata_bytes_max"),
    "offsets.retention.check.interval.ms": ("groups", "offsets_retention_check_interval_ms"),
    "transaction.state.log.num.partitions": ("transactions", "partitions"),
    "transaction.max.timeout.ms": ("transactions", "timeout_max_ms"),
    "transactional.id.expiration.ms": ("transactions", "id_expiration_ms"),
    "transaction.partition.verification.enable": ("transactions", "is_verification_enabled"),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": (
        "transactions",
        "abort_check_interval_ms",
    ),
    "transaction.remove.expired.transaction.cleanup.interval.ms": (
        "transactions",
        "expiry_check_interval_ms",
    ),
    "socket.request.max.bytes": ("limits", "request_bytes_max"),
    "socket.send.buffer.bytes": ("limits", "send_buffer_bytes"),
    "queued.max.request.bytes": ("limits", "requests_bytes_max"),
    "max.connections": ("limits", "connections_max"),
    "connections.max.idle.ms": ("limits", "idle_max_ms"),
    "partage.group.events.enable": (None, "group_events"),
    "partage.group.events.lag.interval.ms": (None, "group_lag_interval_ms"),
}
#: Broker settings that Kafka counts in minutes or hours, with part, field and factor to ms.
KAFKA_NAMES_SCALED: dict[str, tuple[str, str, int]] = {
    "offsets.retention.minutes": ("groups", "offsets_retention_ms", MINUTE_MS),
}

#: The minimum and maximum of a setting; 0 to `INT32_MAX` if it is not listed.
RANGES: dict[str, tuple[int, int]] = {
    "num.partitions": (1, 10_000),
    "offsets.topic.num.partitions": (1, 10_000),
    "fetch.max.bytes": (1024, INT32_MAX),
    "log.retention.check.interval.ms": (1, 2**53),
    "log.cleaner.backoff.ms": (0, 2**53),
    "group.max.size": (1, INT32_MAX),
    "group.consumer.session.timeout.ms": (1, INT32_MAX),
    "group.consumer.min.session.timeout.ms": (1, INT32_MAX),
    "group.consumer.max.session.timeout.ms": (1, INT32_MAX),
    "group.consumer.heartbeat.interval.ms": (1, INT32_MAX),
    "group.consumer.min.heartbeat.interval.ms": (1, INT32_MAX),
    "group.consumer.max.heartbeat.interval.ms": (1, INT32_MAX),
    "group.consumer.max.size": (1, INT32_MAX),
    "group.consumer.regex.refresh.interval.ms": (10_000, INT32_MAX),
    "offsets.retention.minutes": (1, INT32_MAX),
    "offsets.retention.check.interval.ms": (1, 2**53),
    "transaction.state.log.num.partitions": (1, 10_000),
    "transaction.max.timeout.ms": (1, INT32_MAX),
    "transactional.id.expiration.ms": (1, INT32_MAX),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": (1, INT32_MAX),
    "transaction.remove.expired.transaction.cleanup.interval.ms": (1, INT32_MAX),
    "socket.request.max.bytes": (1024, INT32_MAX),
    "socket.send.buffer.bytes": (SYSTEM_BUFFER, INT32_MAX),
    "queued.max.request.bytes": (1, 2**53),
    "max.connections": (1, INT32_MAX),  # in Kafka 0, which locks all clients out
    "connections.max.idle.ms": (1, 2**53),
    "zookeeper.session.timeout.ms": (500, INT32_MAX),
}
