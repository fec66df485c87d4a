"""The registry of a coordinator: its groups and their consumers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from partage.model.topic_partition import TopicPartition
from partage.proposals.broker_side.purgatory import WatcherTimer
from partage.proposals.broker_side.records import (
    ConsumedOffsetRecord,
    OwnerRecord,
    Record,
    thread_id,
)
from partage.proposals.broker_side.topic_count import TopicCount
from partage.proposals.machine import ConnectionId


class RebalancePhase(StrEnum):
    """The states of a group's rebalance."""

    IDLE = "Idle"
    STOPPING = "Stopping"
    STARTING = "Starting"
    BACKING_OFF = "BackingOff"


#: The meaning of each phase, for the documentation.
PHASE_DESCRIPTIONS: dict[RebalancePhase, str] = {
    RebalancePhase.IDLE: "No handler rebalances the group.",
    RebalancePhase.STOPPING: "The handler waits for the responses to its StopFetcher requests.",
    RebalancePhase.STARTING: "The handler waits for the responses to its StartFetcher requests.",
    RebalancePhase.BACKING_OFF: "An attempt failed. The handler waits before the next one.",
}


class RegisteredConsumer(msgspec.Struct, kw_only=True, eq=False):
    """A consumer.

    Attributes:
        id: Its id, unique within the group.
        group_id: Its group.
        connection: Its connection, which stays the same while it is registered.
        topic_count: Its topics and threads.
        session_timeout_ms: Its session timeout.
        failed_pings: Pings in a row without a response in time.
        is_started: True if no StopFetcher request followed its last StartFetcher request.
        is_confirmed: True if it answered that request in time and without an error.
        owned: The partitions of its last StartFetcher request.
    """

    id: str
    group_id: str
    connection: ConnectionId
    topic_count: TopicCount
    session_timeout_ms: int
    failed_pings: int = 0
    is_started: bool = False
    is_confirmed: bool = False
    owned: frozenset[TopicPartition] = frozenset()

    @property
    def ping_interval_ms(self) -> int:
        """A third of the session timeout."""
        return self.session_timeout_ms // 3

    @property
    def response_timeout_ms(self) -> int:
        """Two thirds of the session timeout."""
        return self.session_timeout_ms * 2 // 3


class PushGroup:
    """A group: its consumers, their offsets, the owners in ZooKeeper, and its rebalance."""

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.consumers: dict[str, RegisteredConsumer] = {}
        #: The topics of its consumers, and of those that it has lost since it was empty.
        self.topics: set[str] = set()
        #: The consumed offsets, as reported last.
        self.offsets: dict[TopicPartition, int] = {}
        #: The partitions whose offset is not in ZooKeeper yet.
        self.uncommitted: set[TopicPartition] = set()
        #: The owners in ZooKeeper.
        self.owners: dict[TopicPartition, OwnerRecord] = {}
        #: Earlier consumers that have not registered again, with their session timeouts.
        self.awaited: dict[str, int] = {}
        #: The rebalance bit: True if a rebalance is requested and has not begun.
        self.is_pending = False
        #: True if rebalancing is off for the group (KAFKA-364).
        self.is_frozen = False
        #: True while a rebalance waits for the consumers whose connections it has closed.
        self.is_closing = False
        self.phase = RebalancePhase.IDLE
        self.failed_attempts = 0
        #: The assignment of the current attempt: the thread of each partition.
        self.plan: dict[TopicPartition, str] = {}
        #: The consumers of the current attempt.
        self.participants: list[RegisteredConsumer] = []
        #: The requests of the current attempt without a response.
        self.waiting: dict[ConnectionId, WatcherTimer] = {}

    @property
    def may_rebalance(self) -> bool:
        """True if no earlier consumer is awaited, and rebalancing is on or has to be completed."""
        return not self.awaited and (self.is_closing or not self.is_frozen)

    @property
    def is_empty(self) -> bool:
        """True if nothing would be lost without the group: a new one has the same state."""
        return not (self.consumers or self.awaited or self.offsets or self.owners or self.is_frozen)

    def apply(self, record: Record) -> None:
        """Apply a node of ZooKeeper."""
        partition = TopicPartition(record.topic, record.partition)
        match record:
            case ConsumedOffsetRecord():
                self.offsets[partition] = record.offset
                self.uncommitted.discard(partition)
            case OwnerRecord(thread=None):
                self.owners.pop(partition, None)
            case OwnerRecord():
                self.owners[partition] = record

    def is_rebalance_needed(self, shares: Mapping[str, frozenset[TopicPartition]]) -> bool:
        """True if ZooKeeper or a consumer has another assignment than the plan (step 3).

        The document compares with ZooKeeper only. That misses consumers that registered again,
        consumers whose fetchers failed or may have started, and assignments of an attempt that
        failed before it recorded the owners.
        """
        if {each: record.thread for each, record in self.owners.items()} != self.plan:
            return True
        return any(
            (consumer.is_started and not consumer.is_confirmed)
            or (consumer.owned if consumer.is_started else frozenset())
            != shares.get(consumer.id, frozenset())
            for consumer in self.consumers.values()
        )


def assign_threads(
    consumers: Iterable[RegisteredConsumer], topics: Mapping[str, int]
) -> dict[TopicPartition, str]:
    """Return the thread of each partition.

    As in Kafka 0.7, the sorted threads of a topic get consecutive partitions, and the first threads
    one more if the division leaves a rest.

    Args:
        consumers: The consumers of a group.
        topics: The partition count of each topic.
    """
    members = list(consumers)
    plan = {}
    sorted_threads: dict[tuple[int, ...], list[str]] = {}  # most topics have the same threads
    for topic, count in sorted(topics.items()):
        counts = tuple(each.topic_count.threads_of(topic) for each in members)
        if not any(counts):
            continue
        threads = sorted_threads.get(counts)
        if threads is None:
            threads = sorted_threads[counts] = sorted(
                thread_id(each.id, number)
                for each, threads_of_member in zip(members, counts, strict=True)
                for number in range(threads_of_member)
            )
        share, rest = divmod(count, len(threads))
        partition = 0
        for index, thread in enumerate(threads):
            for _ in range(share + (index < rest)):
                plan[TopicPartition(topic, partition)] = thread
                partition += 1
    return plan
