"""The configuration of section 4 of the document."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from partage.proposals.broker_side.messages import BrokerAddress
from partage.proposals.broker_side.records import (
    CONSUMER_ID_BYTES_MAX,
    is_consumer_id,
    is_group_id,
)
from partage.proposals.broker_side.topic_count import parse_topic_count

#: The most rebalance handlers: each one takes memory.
HANDLERS_MAX: Final = 1_000
#: Where to read if an offset is out of range.
OFFSET_RESETS: Final = frozenset({"smallest", "largest"})


class RebalanceMethod(StrEnum):
    """The way in which the coordinator takes partitions from consumers."""

    STOP_FETCHERS = "stop fetchers"  # section 9: StopFetcher and StartFetcher requests
    CLOSE_CONNECTIONS = "close connections"  # section 2: all consumers register again


class PushCoordinatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a broker, which it uses while it is the coordinator.

    Attributes:
        rebalance_threadpool_size: "Rebalancing threadpool size": the number of rebalance handlers.
        rebalance_queue_size: Tasks that the queue of a handler holds (section 5, item 5).
        session_timeout_min_ms: "Minimum viable value for consumer session timeout".
        ping_retries_max: "Maximum number of timed out heartbeats to consumers". A consumer fails
            with the next one. With less than 1, a consumer that is cut off may be replaced before
            it has stopped.
        offset_commit_interval_ms: "Offset committing (to ZK) interval".
        rebalance_retries_max: "Maximum rebalance retries".
        rebalance_backoff_ms: "Rebalance backoff time (in milliseconds)".
        rebalance_method: The document describes two.
        brokers: The brokers of the cluster, until the first `BrokersChanged`.
        broker_id: The id of this broker.
    """

    rebalance_threadpool_size: int = 2
    rebalance_queue_size: int = 100
    session_timeout_min_ms: int = 6_000
    ping_retries_max: int = 3
    offset_commit_interval_ms: int = 5_000
    rebalance_retries_max: int = 4
    rebalance_backoff_ms: int = 2_000
    rebalance_method: RebalanceMethod = RebalanceMethod.STOP_FETCHERS
    brokers: tuple[BrokerAddress, ...] = ()
    broker_id: int = 0

    def __post_init__(self) -> None:
        for name in ("rebalance_threadpool_size", "rebalance_queue_size"):
            _check_minimum(self, name, 1)
        for name in ("ping_retries_max", "rebalance_retries_max", "rebalance_backoff_ms"):
            _check_minimum(self, name, 0)
        for name in ("session_timeout_min_ms", "offset_commit_interval_ms"):
            _check_minimum(self, name, 1)
        if self.rebalance_threadpool_size > HANDLERS_MAX:
            raise ValueError(
                f"rebalance_threadpool_size={self.rebalance_threadpool_size} is above "
                f"{HANDLERS_MAX}"
            )


class PushConsumerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a consumer.

    Attributes:
        bootstrap_brokers: "Bootstrap broker list": at least one.
        session_timeout_ms: "Session timeout".
        group_id: The consumer's group.
        consumer_id: Its id, unique within the group, of at most `CONSUMER_ID_BYTES_MAX` bytes.
        topic_count: Its topics and threads; see `topic_count.parse_topic_count`.
        auto_commit: True if it reports its offsets.
        auto_offset_reset: "smallest" or "largest": where to read if an offset is out of range.
        retry_backoff_ms: The wait before the next broker of the list is tried.
    """

    bootstrap_brokers: tuple[BrokerAddress, ...]
    group_id: str
    consumer_id: str
    topic_count: str
    session_timeout_ms: int = 45_000
    auto_commit: bool = True
    auto_offset_reset: str = "smallest"
    retry_backoff_ms: int = 100

    def __post_init__(self) -> None:
        if not self.bootstrap_brokers:
            raise ValueError("bootstrap_brokers is empty: give at least one broker")
        if not is_group_id(self.group_id):
            raise ValueError(
                f"group_id={self.group_id!r} is invalid: use at most 249 letters, digits, '.', "
                "'_' and '-'; 'coordinator' is reserved"
            )
        if not is_consumer_id(self.consumer_id):
            raise ValueError(
                f"consumer_id has {len(self.consumer_id.encode())} bytes: use 1 to "
                f"{CONSUMER_ID_BYTES_MAX}"
            )
        _check_minimum(self, "session_timeout_ms", 1)
        _check_minimum(self, "retry_backoff_ms", 0)
        if self.auto_offset_reset not in OFFSET_RESETS:
            raise ValueError(
                f"auto_offset_reset={self.auto_offset_reset!r} is not one of "
                f"{', '.join(sorted(OFFSET_RESETS))}"
            )
        parse_topic_count(self.topic_count)


def _check_minimum(
    settings: PushCoordinatorSettings | PushConsumerSettings, name: str, minimum: int
) -> None:
    value = getattr(settings, name)
    if value < minimum:
        raise ValueError(f"{name}={value} is below {minimum}")
