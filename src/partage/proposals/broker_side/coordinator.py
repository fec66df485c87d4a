"""The coordinator: it registers and pings consumers, commits their offsets and rebalances groups.

The rebalance is in `rebalance`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from partage.model.topic_partition import TopicPartition
from partage.proposals.broker_side.events import (
    BackoffTimer,
    BrokersChanged,
    CommitTimer,
    Outcome,
    PingTimer,
    RebalancingSwitched,
    RegistrationTimer,
    Resigned,
)
from partage.proposals.broker_side.messages import (
    ClusterMetadataRequest,
    ClusterMetadataResponse,
    PartitionOffset,
    PingRequest,
    PingResponse,
    PushError,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
    StartFetcherResponse,
    StopFetcherResponse,
)
from partage.proposals.broker_side.purgatory import RequestKind, WatcherTimer
from partage.proposals.broker_side.rebalance import Rebalancer
from partage.proposals.broker_side.records import (
    Record,
    is_consumer_id,
    is_group_id,
    partition_number,
)
from partage.proposals.broker_side.registry import PushGroup, RegisteredConsumer
from partage.proposals.broker_side.scheduler import PingScheduler
from partage.proposals.broker_side.settings import OFFSET_RESETS, PushCoordinatorSettings
from partage.proposals.broker_side.topic_count import parse_topic_count
from partage.proposals.machine import (
    ClusterTopicsChanged,
    ConnectionId,
    ConnectionLost,
    Elected,
    Event,
    MessageReceived,
    TimerFired,
)
from partage.wire.types import Message


class PushCoordinator(Rebalancer):
    """The coordinator of a cluster.

    A shell applies the nodes of ZooKeeper and delivers `RebalancingSwitched` for each group whose
    rebalancing is off, then `Elected`.

    Args:
        settings: The coordinator's settings.
    """

    def __init__(self, settings: PushCoordinatorSettings) -> None:
        super().__init__(settings)
        self.coordinator_id: int | None = None
        self._reset()

    def _reset(self) -> None:
        """Forget everything in memory."""
        super()._reset()
        self.is_elected = False
        #: The groups that subscribe to each topic.
        self.topic_groups: dict[str, set[str]] = {}
        self.wildcard_groups: set[str] = set()
        self.scheduler = PingScheduler()
        self._ping_timer_ms: int | None = None

    def apply(self, record: Record) -> None:
        """Apply a node of ZooKeeper."""
        self._group(record.group_id).apply(record)

    # Events

    def handle(self, event: Event) -> Outcome:
        """Handle an event and return its effects."""
        draw = event.draw if isinstance(event, MessageReceived | TimerFired) else 0
        outcome = Outcome(event.at_ms, draw)
        match event:
            case MessageReceived():
                self._on_message(outcome, event.connection, event.message)
            case TimerFired():
                self._on_timer(outcome, event.key)
            case ConnectionLost():
                consumer = self.consumers.get(event.connection)
                if consumer is not None:
                    self._remove(outcome, consumer)
            case Elected():
                self._on_elected(outcome, event.topics)
            case ClusterTopicsChanged():
                self._on_topics_changed(outcome, event.topics)
            case BrokersChanged():
                self.brokers, self.coordinator_id = event.brokers, event.coordinator_id
            case RebalancingSwitched():
                self._on_switched(outcome, event)
            case Resigned():
                self._on_resigned(outcome)
            case _:
                raise AssertionError(f"unexpected event {event}")
        self._set_ping_timer(outcome)
        return outcome

    def _on_message(self, outcome: Outcome, connection: ConnectionId, message: Message) -> None:
        consumer = self.consumers.get(connection)
        match message:
            case ClusterMetadataRequest():
                outcome.send(connection, self._cluster_metadata())
            case RegisterConsumerRequest():
                error = self._register(outcome, connection, message)
                if error:
                    outcome.send(connection, RegisterConsumerResponse(error_code=error))
            case PingResponse() if consumer is not None:
                if self._satisfy(outcome, RequestKind.PING, consumer) is not None:
                    consumer.failed_pings = 0
                    self._record_offsets(outcome, consumer, message.offset_info)
            case StopFetcherResponse() if consumer is not None:
                watcher = self._satisfy(outcome, RequestKind.STOP_FETCHER, consumer)
                if watcher is not None:
                    self._record_offsets(outcome, consumer, message.offset_info)
                    self._on_answered(outcome, consumer, watcher, message.error_code)
            case StartFetcherResponse() if consumer is not None:
                watcher = self._satisfy(outcome, RequestKind.START_FETCHER, consumer)
                if watcher is not None:
                    self._on_answered(outcome, consumer, watcher, message.error_code)
            case _:
                outcome.closes.append(connection)

    def _satisfy(
        self, outcome: Outcome, kind: RequestKind, consumer: RegisteredConsumer
    ) -> WatcherTimer | None:
        """Clear and return the watcher of a response.

        Returns:
            None if the consumer got no such request. It was removed.
        """
        watcher = self.purgatories[kind].satisfy(consumer.connection)
        if watcher is None:
            self._fail(outcome, consumer)
            return None
        outcome.cancel_timer(watcher)
        return watcher

    def _on_timer(self, outcome: Outcome, key: Hashable) -> None:
        match key:
            case PingTimer():
                self._ping_timer_ms = None
                self._send_pings(outcome)
            case WatcherTimer():
                self._on_expired(outcome, key)
            case CommitTimer():
                for group in self.groups.values():
                    self._commit(outcome, group)
                outcome.arm_timer(CommitTimer(), self.settings.offset_commit_interval_ms)
            case BackoffTimer(group_id=group_id):
                self._on_backoff_over(outcome, self.groups[group_id])
            case RegistrationTimer(group_id=group_id):
                self._end_wait(outcome, self.groups[group_id])

    def _on_expired(self, outcome: Outcome, watcher: WatcherTimer) -> None:
        consumer = self.consumers.get(watcher.connection)
        if consumer is None:
            return
        if watcher.kind is not RequestKind.PING:
            self._on_late(outcome, consumer, watcher)
            return
        consumer.failed_pings += 1
        if consumer.failed_pings > self.settings.ping_retries_max:
            self._fail(outcome, consumer)

    # Election and topics

    def _on_elected(self, outcome: Outcome, topics: Mapping[str, int]) -> None:
        """Start up. Groups with owners wait until their earlier consumers register again."""
        self.is_elected = True
        self.topics = dict(topics)
        outcome.arm_timer(CommitTimer(), self.settings.offset_commit_interval_ms)
        for group in self.groups.values():
            self._await_owners(outcome, group)

    def _on_resigned(self, outcome: Outcome) -> None:
        """Clear the memory and close all connections: the consumers find the next coordinator."""
        for consumer in list(self.consumers.values()):
            self._cancel_watchers(outcome, consumer)
            outcome.closes.append(consumer.connection)
        for group_id in self.groups:
            outcome.cancel_timer(BackoffTimer(group_id))
            outcome.cancel_timer(RegistrationTimer(group_id))
        outcome.cancel_timer(CommitTimer())
        outcome.cancel_timer(PingTimer())
        self._reset()

    def _on_topics_changed(self, outcome: Outcome, topics: Mapping[str, int]) -> None:
        """Rebalance the groups that subscribe to topics with other partitions than before."""
        before, self.topics = self.topics, dict(topics)
        changed = [
            name
            for name in sorted(topics.keys() | before.keys())
            if topics.get(name) != before.get(name)
        ]
        for topic in changed:
            for group_id in sorted(self.wildcard_groups):
                group = self.groups[group_id]
                if any(each.topic_count.threads_of(topic) for each in group.consumers.values()):
                    self._subscribe(group, topic)
        affected = {group_id for topic in changed for group_id in self.topic_groups.get(topic, ())}
        for group_id in sorted(affected):
            self._request_rebalance(outcome, self.groups[group_id])

    def _subscribe(self, group: PushGroup, topic: str) -> None:
        group.topics.add(topic)
        self.topic_groups.setdefault(topic, set()).add(group.id)

    def _on_switched(self, outcome: Outcome, event: RebalancingSwitched) -> None:
        group = self._group(event.group_id)
        group.is_frozen = not event.is_enabled
        self._enqueue_if_due(outcome, group)
        self._evict(group)

    # Consumers

    def _cluster_metadata(self) -> ClusterMetadataResponse:
        known = self.settings.broker_id if self.is_elected else self.coordinator_id
        return ClusterMetadataResponse(
            error_code=PushError.COORDINATOR_NOT_AVAILABLE if known is None else PushError.NONE,
            coordinator_id=-1 if known is None else known,
            brokers_info=list(self.brokers),
        )

    def _register(
        self, outcome: Outcome, connection: ConnectionId, request: RegisterConsumerRequest
    ) -> PushError:
        """Register a consumer, or return an error. The consumer closes its connection then."""
        if not self.is_elected:
            return PushError.COORDINATOR_NOT_AVAILABLE
        if (
            not is_group_id(request.group_id)
            or not is_consumer_id(request.consumer_id)
            or connection in self.consumers
        ):
            return PushError.INVALID_REGISTRATION
        known = self.groups.get(request.group_id)
        if known is not None and request.consumer_id in known.consumers:
            return PushError.DUPLICATE_CONSUMER_ID
        if request.session_timeout_ms < self.settings.session_timeout_min_ms:
            return PushError.INVALID_SESSION_TIMEOUT
        if request.auto_offset_rest not in OFFSET_RESETS:
            return PushError.INVALID_REGISTRATION
        try:
            topic_count = parse_topic_count(request.topic_count)
        except ValueError:
            return PushError.INVALID_REGISTRATION
        group = self._group(request.group_id)
        consumer = RegisteredConsumer(
            id=request.consumer_id,
            group_id=group.id,
            connection=connection,
            topic_count=topic_count,
            session_timeout_ms=request.session_timeout_ms,
        )
        outcome.send(connection, RegisterConsumerResponse())
        self._add(outcome, group, consumer)
        return PushError.NONE

    def _add(self, outcome: Outcome, group: PushGroup, consumer: RegisteredConsumer) -> None:
        """Add an accepted consumer: ping it, subscribe its group, and rebalance."""
        self.consumers[consumer.connection] = consumer
        group.consumers[consumer.id] = consumer
        self.scheduler.add(consumer.connection, outcome.at_ms + consumer.ping_interval_ms)
        count = consumer.topic_count
        if count.is_wildcard:
            self.wildcard_groups.add(group.id)
        for topic in self.topics if count.is_wildcard else count.threads:
            if count.threads_of(topic):
                self._subscribe(group, topic)
        self._request_rebalance(outcome, group)
        if group.awaited:
            group.awaited.pop(consumer.id, None)
            if not group.awaited:
                self._end_wait(outcome, group)

    def _fail(self, outcome: Outcome, consumer: RegisteredConsumer) -> None:
        """Close the connection of a failed consumer, and remove it."""
        outcome.closes.append(consumer.connection)
        self._remove(outcome, consumer)

    def _remove(self, outcome: Outcome, consumer: RegisteredConsumer) -> None:
        """Remove a consumer. A rebalance in progress fails, and a new one follows."""
        group = self.groups[consumer.group_id]
        self._unregister(outcome, group, consumer)
        self._rebalance_after_loss(outcome, group)
        if not group.consumers:
            self._clear(outcome, group)

    def _unregister(self, outcome: Outcome, group: PushGroup, consumer: RegisteredConsumer) -> None:
        self.scheduler.remove(consumer.connection)
        self._cancel_watchers(outcome, consumer)
        del self.consumers[consumer.connection]
        del group.consumers[consumer.id]

    def _cancel_watchers(self, outcome: Outcome, consumer: RegisteredConsumer) -> None:
        for purgatory in self.purgatories.values():
            for watcher in purgatory.remove(consumer.connection):
                outcome.cancel_timer(watcher)

    def _clear(self, outcome: Outcome, group: PushGroup) -> None:
        """End the subscriptions of a group without consumers, and delete its owners."""
        self._commit(outcome, group)
        self.wildcard_groups.discard(group.id)
        for topic in group.topics:
            group_ids = self.topic_groups[topic]
            group_ids.discard(group.id)
            if not group_ids:
                del self.topic_groups[topic]
        group.topics.clear()
        if not group.awaited:
            group.is_closing = False
            group.is_pending = False
            self._delete_owners(outcome, group)
            self._evict(group)

    # Pings and offsets

    def _send_pings(self, outcome: Outcome) -> None:
        for connection, at_ms in self.scheduler.pop_due(outcome.at_ms):
            consumer = self.consumers[connection]
            request = PingRequest(consumer_id=consumer.id, num_retries=consumer.failed_pings)
            self._send(outcome, RequestKind.PING, consumer, request)
            # A coordinator that was stopped does not repeat the pings that it missed.
            begin_ms = max(at_ms, outcome.at_ms - consumer.ping_interval_ms + 1)
            self.scheduler.add(connection, begin_ms + consumer.ping_interval_ms)

    def _set_ping_timer(self, outcome: Outcome) -> None:
        next_ms = self.scheduler.next_ms
        if next_ms is not None and next_ms != self._ping_timer_ms:
            outcome.arm_timer(PingTimer(), next_ms - outcome.at_ms)
            self._ping_timer_ms = next_ms

    def _record_offsets(
        self,
        outcome: Outcome,
        consumer: RegisteredConsumer,
        offsets: list[PartitionOffset] | None,
    ) -> None:
        """Record the offsets of partitions that the consumer owns. The committer stores them."""
        group = self.groups[consumer.group_id]
        for each in offsets or ():
            partition = TopicPartition(each.topic, partition_number(each.partition))
            if partition not in consumer.owned or each.offset < 0:
                outcome.refused_offsets.append((consumer.id, each.topic, each.partition))
            elif group.offsets.get(partition) != each.offset:
                group.offsets[partition] = each.offset
                group.uncommitted.add(partition)
