"""The events, timers and outcomes that only this design has."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from partage.model.topic_partition import TopicPartition
from partage.proposals.broker_side.messages import BrokerAddress
from partage.proposals.broker_side.purgatory import WatcherTimer
from partage.proposals.broker_side.records import Record
from partage.proposals.machine import Action, Connect, CoordinatorOutcome, Event
from partage.wire.types import Message

# The coordinator's


class Resigned(Event, frozen=True, gc=False, kw_only=True):
    """The ZooKeeper session of the coordinator expired, so it is no longer the coordinator."""


class BrokersChanged(Event, frozen=True, gc=False, kw_only=True):
    """ZooKeeper has other brokers, or another coordinator. ``coordinator_id`` is None without one.

    Brokers that are not the coordinator get it, too: any broker answers ClusterMetadata.
    """

    brokers: tuple[BrokerAddress, ...]
    coordinator_id: int | None


class RebalancingSwitched(Event, frozen=True, gc=False, kw_only=True):
    """An operator turned the rebalancing of a group on or off (KAFKA-364).

    A rebalance in progress is completed. Later ones wait until rebalancing is on again.
    """

    group_id: str
    is_enabled: bool


class PingTimer(msgspec.Struct, frozen=True):
    """The next ping of the scheduler is due."""


class CommitTimer(msgspec.Struct, frozen=True):
    """The committer's interval is over."""


class BackoffTimer(msgspec.Struct, frozen=True):
    """The next attempt of a rebalance is due."""

    group_id: str


class RegistrationTimer(msgspec.Struct, frozen=True):
    """The earlier consumers of a group had time to register again."""

    group_id: str


TimerKey: TypeAlias = PingTimer | CommitTimer | BackoffTimer | RegistrationTimer | WatcherTimer


class Outcome(CoordinatorOutcome[TimerKey, Record]):
    """The effects of one event of the coordinator.

    ``failed_rebalances`` has groups whose rebalance failed for good, with the reason. That is an
    error for the log. ``refused_offsets`` are offsets of partitions that their consumer does not
    own.
    """

    __slots__ = ("failed_rebalances", "refused_offsets")

    def __init__(self, at_ms: int, draw: int = 0) -> None:
        super().__init__(at_ms, draw)
        self.failed_rebalances: dict[str, str] = {}  # reason by group
        self.refused_offsets: list[tuple[str, str, str]] = []  # consumer, topic, partition


# The consumer's


class BrokerConnected(Event, frozen=True, gc=False, kw_only=True):
    """The connection to a broker of the list is open."""


class BrokerDisconnected(Event, frozen=True, gc=False, kw_only=True):
    """The connection to a broker of the list failed or is closed."""


class BrokerResponseReceived(Event, frozen=True, gc=False, kw_only=True):
    """A broker of the list answered."""

    message: Message


class OffsetsOutOfRange(Event, frozen=True, gc=False, kw_only=True):
    """Fetchers have stopped, as the offsets of these partitions are out of range."""

    partitions: frozenset[TopicPartition]


class ConnectBroker(Action, frozen=True, gc=False, kw_only=True):
    """Connect to a broker of the list; then `BrokerConnected` or `BrokerDisconnected`."""

    broker: BrokerAddress


class SendToBroker(Action, frozen=True, gc=False, kw_only=True):
    """Send a request to the broker of `ConnectBroker`; then `BrokerResponseReceived`."""

    message: Message


class DisconnectBroker(Action, frozen=True, gc=False, kw_only=True):
    """Close the connection of `ConnectBroker`, if there is one. No event follows."""


class ConnectCoordinator(Connect, frozen=True, gc=False, kw_only=True):
    """Connect to the coordinator; then `Connected` or `Disconnected`."""

    broker: BrokerAddress


class ResetPositions(Action, frozen=True, gc=False, kw_only=True):
    """Read these partitions from the smallest or largest offset."""

    partitions: frozenset[TopicPartition]
    to: str
