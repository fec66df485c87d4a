"""The options of a world, and the times that follow from them; `lab.scenario` draws them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from partage.model.settings import (
    ConsumerGroupSettings,
    GroupSettings,
    MigrationPolicy,
    TransactionSettings,
)

_PositiveInt = Annotated[int, msgspec.Meta(ge=1, le=1_000)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Delay = Annotated[int, msgspec.Meta(ge=0, le=60_000)]
_Interval = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
_Timeout = Annotated[int, msgspec.Meta(ge=1_000, le=1_800_000)]


#: Steps add up to this difference at most. Topics keep records for longer.
WALL_DIFFERENCE_MAX_MS: Final = 2 * 86_400_000
#: Kafka's ``delete.retention.ms``: compaction keeps tombstones and markers for this time.
DELETE_RETENTION_MS: Final = 86_400_000


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of a world. Times are in milliseconds, probabilities from 0 to 1."""

    members: _PositiveInt
    static_share: _Share
    has_second_group: bool
    partitions_t: _PositiveInt
    partitions_u: _PositiveInt
    assignors: Literal["cooperative-sticky", "range", "sticky", "roundrobin", "mixed"]
    # number of versions by which clients may stay below the newest one of each API
    versions_below_newest_max: _Count
    session_timeout_ms: _Timeout
    rebalance_timeout_ms: _Timeout
    heartbeat_interval_ms: _Interval
    max_poll_interval_ms: _Timeout
    poll_interval_ms: _Interval
    commits_at_revoke: bool
    initial_rebalance_delay_ms: _Delay
    new_member_join_timeout_ms: _Timeout
    members_max: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    offsets_retention_ms: _Interval
    retention_check_ms: _Interval
    segment_bytes: Annotated[int, msgspec.Meta(ge=1_000, le=2**31 - 1)]
    delay_max_ms: _Delay
    frame_split_share: _Share  # share of the frames that arrive in pieces
    disk_delay_ms: _Delay
    produce_every_ms: _Interval
    safety_ms: _Timeout
    steps: _Count
    kinds: tuple[str, ...]
    producers: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1
    # with more than one, brokers share a ZooKeeper
    brokers: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1
    shards: Annotated[int, msgspec.Meta(ge=1, le=50)] = 1
    zookeeper_timeout_ms: _Timeout = 6_000
    zookeeper_delay_max_ms: _Delay = 0
    entries_per_merge: _Interval = 64  # log entries of one broker between merges of a shared log
    cluster_steps: _Count = 0
    cluster_kinds: tuple[str, ...] = ()
    zookeeper_faults: _Count = 0  # of ZooKeeper's answers and registrations
    # longest difference between the wall clock of a broker at the start and the right time
    wall_difference_max_ms: Annotated[int, msgspec.Meta(ge=0, le=WALL_DIFFERENCE_MAX_MS)] = 0
    wall_clock_steps: _Count = 0  # steps of the wall clock of a broker
    append_failures: _Count = 0  # times in which appends to logs of group shards fail
    deletions: _Count = 0  # deletions of a topic without readers, for which offsets are committed
    machine_stalls: _Count = 0  # pauses of the whole machine
    transactional_producers: Annotated[int, msgspec.Meta(ge=0, le=9)] = 0
    # members of a group that consume, transform and produce in transactions (KIP-447)
    transactional_members: Annotated[int, msgspec.Meta(ge=0, le=9)] = 0
    # number of brokers with partitions of the topic that transactional producers write to
    output_leaders: Annotated[int, msgspec.Meta(ge=1, le=9)] = 3
    link_faults: _Count = 0  # of the connections over which brokers send markers
    late_markers: _Count = 0  # markers that arrive again
    wrong_request_share: _Share = 0.0  # share of the transactions in which a producer sends some
    # share of the requests of transactional producers that are sent over two connections
    repeated_request_share: _Share = 0.0
    delete_retention_ms: _Interval = DELETE_RETENTION_MS  # of compacted logs
    compactions: _Count = 0  # of all compacted logs of a broker
    output_is_compacted: bool = False  # the topic that transactional producers write to
    transaction_protocol: Literal["old", "new", "mixed"] = "mixed"  # before KIP-890, or with it
    transaction_timeout_ms: _Timeout = 10_000
    transaction_every_ms: _Interval = 300
    marker_delay_max_ms: _Delay = 0
    first_epoch: Annotated[int, msgspec.Meta(ge=0, le=32_766)] = 0  # of producer ids
    transaction_steps: _Count = 0
    transaction_kinds: tuple[str, ...] = ()
    # members of a further group, which speak the consumer protocol (KIP-848)
    consumer_members: Annotated[int, msgspec.Meta(ge=0, le=9)] = 0
    consumer_static_share: _Share = 0.0
    consumer_regex_share: _Share = 0.0
    consumer_session_timeout_ms: _Timeout = 6_000
    consumer_rebalance_timeout_ms: _Timeout = 6_000
    consumer_heartbeat_interval_ms: _Interval = 1_000
    consumer_members_max: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 1_000
    assignment_interval_ms: _Delay = 0
    action_delay_max_ms: _Delay = 0  # of assignors and of the matching of regular expressions
    consumer_steps: _Count = 0
    consumer_kinds: tuple[str, ...] = ()
    # members of the same group with the classic protocol, at the start of the world
    classic_members: Annotated[int, msgspec.Meta(ge=0, le=9)] = 0
    migration_policy: Literal["disabled", "upgrade", "downgrade", "bidirectional"] = "bidirectional"
    migration_steps: _Count = 0
    migration_kinds: tuple[str, ...] = ()

    @property
    def has_wall_clock_faults(self) -> bool:
        """True if the wall clock of a broker may differ from the right time."""
        return bool(self.wall_difference_max_ms or self.wall_clock_steps)

    def transaction_settings(self) -> TransactionSettings:
        """Return the transaction settings of the brokers."""
        return TransactionSettings(
            partitions=max(1, self.transaction_shard_count),
            id_expiration_ms=TRANSACTIONAL_ID_EXPIRATION_MS,
            abort_check_interval_ms=ABORT_CHECK_INTERVAL_MS,
            expiry_check_interval_ms=ABORT_CHECK_INTERVAL_MS,
        )

    def group_settings(self) -> GroupSettings:
        """Return the group settings of the brokers."""
        return GroupSettings(
            session_timeout_min_ms=1_000,
            initial_rebalance_delay_ms=self.initial_rebalance_delay_ms,
            new_member_join_timeout_ms=self.new_member_join_timeout_ms,
            members_max=self.members_max,
            offsets_retention_ms=self.offsets_retention_ms,
            offsets_retention_check_interval_ms=self.retention_check_ms,
            consumer=ConsumerGroupSettings(
                session_timeout_ms=self.consumer_session_timeout_ms,
                session_timeout_min_ms=1_000,
                heartbeat_interval_ms=self.consumer_heartbeat_interval_ms,
                heartbeat_interval_min_ms=1,
                members_max=self.consumer_members_max,
                assignment_interval_ms=self.assignment_interval_ms,
                regex_refresh_interval_ms=REGEX_REFRESH_MS,
                migration_policy=MigrationPolicy(self.migration_policy),
            ),
        )

    @property
    def liveness_timeout_ms(self) -> int:
        """Time limit in which a healed world must become stable.

        A member that lost a response notices it after its request timeout. A dead member's session
        or the rebalance timeout must expire. These delays can occur one after the other. After
        that, consumers must read and commit, perhaps over connections that turn out to be closed.
        """
        return (
            self.session_timeout_ms
            + self.rebalance_timeout_ms
            + 2 * self.heartbeat_interval_ms
            + self.initial_rebalance_delay_ms
            + PARKED_LAPSE_MS
            + 4 * REQUEST_TIMEOUT_MS
            + self.max_poll_interval_ms
            + 3 * self.poll_interval_ms
            + self.takeover_ms
        )

    @property
    def transaction_liveness_ms(self) -> int:
        """Time limit in which all transactions of a healed world must end.

        A producer that lost a response notices it after its request timeout, more than once if it
        sends the request again over a connection that turns out to be closed. The transaction of a
        dead producer must time out.
        """
        timed_out_ms = self.transaction_timeout_ms + 3 * ABORT_CHECK_INTERVAL_MS
        return timed_out_ms + 6 * REQUEST_TIMEOUT_MS + IN_FLIGHT_MAX_MS

    @property
    def consumer_liveness_ms(self) -> int:
        """Time limit in which the group with the consumer protocol must converge.

        Besides the delays of `liveness_timeout_ms`, an action that hangs must exceed its time
        limit, the pause after failures must end, and topics must be matched again.
        """
        return (
            (self.liveness_timeout_ms if self.classic_members else 0)
            + 2 * self.consumer_session_timeout_ms
            + self.consumer_rebalance_timeout_ms
            + 4 * REQUEST_TIMEOUT_MS
            + self.takeover_ms
            + ACTION_TIMEOUT_MS
            + _ACTION_BACKOFF_MAX_MS
            + 2 * REGEX_REFRESH_MS
            + 4 * (self.assignment_interval_ms + self.action_delay_max_ms)
        )

    @property
    def shard_count(self) -> int:
        """Number of shards; a single broker has one."""
        return 1 if self.brokers == 1 else self.shards

    @property
    def transaction_shard_count(self) -> int:
        """Number of shards of transactional ids; a world without transactions has none."""
        if not self.transactional_producers:
            return 0
        return 1 if self.brokers == 1 else _TRANSACTION_SHARDS

    @property
    def takeover_ms(self) -> int:
        """Longest time without a coordinator after a broker died; 0 with a single broker.

        The session timeout counts twice: the session may have been renewed just before the broker
        died.
        """
        if self.brokers == 1:
            return 0
        asked_ms = _TAKEOVER_ROUND_TRIPS * 2 * self.zookeeper_delay_max_ms
        return 2 * self.zookeeper_timeout_ms + TAKEOVER_MAX_MS + asked_ms


#: Transactional ids expire after this time without a transaction.
TRANSACTIONAL_ID_EXPIRATION_MS: Final = 8_000
ABORT_CHECK_INTERVAL_MS: Final = 1_000
#: Time limit of an assignor, and of the matching of regular expressions.
ACTION_TIMEOUT_MS: Final = 8_000
#: The interval in which regular expressions are matched again; the least that a group allows.
REGEX_REFRESH_MS: Final = 10_000
_ACTION_BACKOFF_MAX_MS: Final = 30_000
REQUEST_TIMEOUT_MS: Final = 5_000
PARKED_LAPSE_MS: Final = 2_000
IN_FLIGHT_MAX_MS: Final = (
    8_000  # longest delay of bytes that are in flight when the faults are healed
)
TAKEOVER_MAX_MS: Final = 4_000  # from the end of a session until a successor has loaded the shard
_TAKEOVER_ROUND_TRIPS: Final = 10  # sequential requests during a takeover
_TRANSACTION_SHARDS: Final = 2  # of several brokers
