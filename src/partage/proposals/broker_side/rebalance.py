"""The rebalance of groups, steps 1 to 5 of section 9."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from partage.model.topic_partition import TopicPartition
from partage.proposals.broker_side.events import BackoffTimer, Outcome, RegistrationTimer
from partage.proposals.broker_side.handlers import RebalanceHandler, RebalanceHandlers
from partage.proposals.broker_side.messages import (
    PartitionOffset,
    StartFetcherRequest,
    StopFetcherRequest,
    ThreadOwnership,
)
from partage.proposals.broker_side.purgatory import Purgatory, RequestKind, WatcherTimer
from partage.proposals.broker_side.records import (
    ConsumedOffsetRecord,
    OwnerRecord,
    Record,
    consumer_of,
    partition_name,
)
from partage.proposals.broker_side.registry import (
    PushGroup,
    RebalancePhase,
    RegisteredConsumer,
    assign_threads,
)
from partage.proposals.broker_side.settings import PushCoordinatorSettings, RebalanceMethod
from partage.proposals.machine import ConnectionId
from partage.wire.types import Message

#: The offset of a partition without a committed one.
NO_OFFSET: Final = -1
#: The most partitions of a consumer: ``num_partition`` is an int16.
PARTITIONS_MAX: Final = 0x7FFF


class Rebalancer(ABC):
    """The part of a coordinator that rebalances groups.

    Args:
        settings: The coordinator's settings.
    """

    def __init__(self, settings: PushCoordinatorSettings) -> None:
        self.settings = settings
        self.brokers = settings.brokers

    def _reset(self) -> None:
        settings = self.settings
        self.groups: dict[str, PushGroup] = {}
        self.consumers: dict[ConnectionId, RegisteredConsumer] = {}
        self.topics: dict[str, int] = {}
        self.purgatories = {kind: Purgatory(kind) for kind in RequestKind}
        self.handlers = RebalanceHandlers(
            settings.rebalance_threadpool_size, settings.rebalance_queue_size
        )

    def _group(self, group_id: str) -> PushGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = PushGroup(group_id)
        return group

    def _evict(self, group: PushGroup) -> None:
        """Forget a group without consumers that has nothing in ZooKeeper and is not frozen.

        Otherwise clients could fill the memory with group ids. The document creates the registry
        of a group when its first consumer registers.
        """
        is_idle = group.phase is RebalancePhase.IDLE and not self.handlers.has_task(group.id)
        if group.is_empty and is_idle:
            self.groups.pop(group.id, None)

    def _write(self, outcome: Outcome, record: Record) -> None:
        self.groups[record.group_id].apply(record)
        outcome.records.append(record)

    @abstractmethod
    def _unregister(self, outcome: Outcome, group: PushGroup, consumer: RegisteredConsumer) -> None:
        """Remove a consumer from the registry."""

    @abstractmethod
    def _clear(self, outcome: Outcome, group: PushGroup) -> None:
        """Clear a group that has lost its last consumer."""

    def _send(
        self,
        outcome: Outcome,
        kind: RequestKind,
        consumer: RegisteredConsumer,
        request: Message,
    ) -> WatcherTimer:
        """Send a request; return the watcher for its response."""
        outcome.send(consumer.connection, request)
        watcher = self.purgatories[kind].watch(consumer.connection)
        outcome.arm_timer(watcher, consumer.response_timeout_ms)
        return watcher

    # Requests to rebalance

    def _request_rebalance(self, outcome: Outcome, group: PushGroup) -> None:
        """Set the rebalance bit, and give a handler the task. At most one is pending."""
        if group.is_pending or not group.consumers:
            return
        group.is_pending = True
        self._enqueue_if_due(outcome, group)

    def _enqueue_if_due(self, outcome: Outcome, group: PushGroup) -> None:
        """Give a handler the task of a group whose rebalance bit is set, if it may rebalance."""
        if group.is_pending and group.may_rebalance:
            self._run(outcome, self.handlers.put(group.id, outcome.draw))

    def _run(self, outcome: Outcome, handler: RebalanceHandler) -> None:
        """Begin the tasks of a handler until one has to wait."""
        while (group_id := self.handlers.next(handler)) is not None:
            group = self.groups[group_id]
            if group.may_rebalance:  # else the bit stays set until it may
                group.is_pending = False
                if self._begin_attempt(outcome, group):
                    return
            self.handlers.finish(group_id)
            self._evict(group)

    def _finish(self, outcome: Outcome, group: PushGroup) -> None:
        """End the task of a group, and begin the handler's next one."""
        group.phase = RebalancePhase.IDLE
        group.failed_attempts = 0
        self._end_attempt(group)
        self._run(outcome, self.handlers.finish(group.id))

    def _rebalance_after_loss(self, outcome: Outcome, group: PushGroup) -> None:
        """Request a rebalance after the loss of a consumer. An attempt in progress fails.

        It is repeated after the back-off, as other failed attempts. If each loss began the next
        attempt at once, n losses would cost n²/2 requests.
        """
        if group.phase is RebalancePhase.IDLE:
            self._request_rebalance(outcome, group)
        elif group.consumers:
            group.failed_attempts = 0
            self._back_off(outcome, group)
        else:
            outcome.cancel_timer(BackoffTimer(group.id))
            self._finish(outcome, group)

    # Attempts

    def _begin_attempt(self, outcome: Outcome, group: PushGroup) -> bool:
        """Compute the assignment, and stop the fetchers if it is a new one (steps 1 to 4.1).

        Returns:
            False if no rebalance is necessary or possible now.
        """
        group.is_closing = False
        group.plan = assign_threads(group.consumers.values(), self.topics)
        shares = self._shares(group)
        if not group.consumers or not group.is_rebalance_needed(shares):
            return False
        most = max(map(len, shares.values()), default=0)
        if most > PARTITIONS_MAX:
            outcome.failed_rebalances[group.id] = (
                f"a consumer would get {most} partitions, and the messages hold {PARTITIONS_MAX}"
            )
            return False
        if self.settings.rebalance_method is RebalanceMethod.CLOSE_CONNECTIONS:
            return self._close_connections(outcome, group)
        group.phase = RebalancePhase.STOPPING
        group.participants = list(group.consumers.values())
        for consumer in group.participants:
            consumer.is_started = False
            group.waiting[consumer.connection] = self._send(
                outcome,
                RequestKind.STOP_FETCHER,
                consumer,
                StopFetcherRequest(consumer_id=consumer.id),
            )
        return True

    def _close_connections(self, outcome: Outcome, group: PushGroup) -> bool:
        """Close the connections of all started consumers, and wait until they register again.

        If none is started, start the fetchers.
        """
        started = [each for each in group.consumers.values() if each.is_started]
        if not started:
            group.participants = list(group.consumers.values())
            self._start_fetchers(outcome, group)
            return True
        for consumer in started:
            outcome.closes.append(consumer.connection)
            self._unregister(outcome, group, consumer)
        group.is_pending = group.is_closing = True
        self._wait_for(outcome, group, {each.id: each.session_timeout_ms for each in started})
        return False

    def _shares(self, group: PushGroup) -> dict[str, frozenset[TopicPartition]]:
        """Return the partitions of each consumer that has some."""
        by_consumer: dict[str, list[TopicPartition]] = {}
        for partition, thread in group.plan.items():
            by_consumer.setdefault(consumer_of(thread), []).append(partition)
        return {each: frozenset(partitions) for each, partitions in by_consumer.items()}

    def _on_answered(
        self,
        outcome: Outcome,
        consumer: RegisteredConsumer,
        watcher: WatcherTimer,
        error_code: int,
    ) -> None:
        """Handle the response to StopFetcher or StartFetcher: steps 4.2 and 4.5.

        It does not count if it belongs to a request of an earlier attempt.
        """
        group = self.groups[consumer.group_id]
        if group.waiting.get(consumer.connection) != watcher:
            return
        if error_code:
            self._fail_attempt(outcome, group)
            return
        del group.waiting[consumer.connection]
        consumer.is_confirmed = watcher.kind is RequestKind.START_FETCHER
        if group.waiting:
            return
        if watcher.kind is RequestKind.STOP_FETCHER:
            self._start_fetchers(outcome, group)
        else:
            self._record_owners(outcome, group)
            self._finish(outcome, group)

    def _start_fetchers(self, outcome: Outcome, group: PushGroup) -> None:
        """Commit the offsets and start the fetchers (steps 4.3 and 4.4)."""
        self._commit(outcome, group)
        group.phase = RebalancePhase.STARTING
        threads: dict[str, dict[str, list[TopicPartition]]] = {}
        for partition, thread in sorted(group.plan.items()):
            of_consumer = threads.setdefault(consumer_of(thread), {})
            of_consumer.setdefault(thread, []).append(partition)
        for consumer in group.participants:
            by_thread = threads.get(consumer.id, {})
            consumer.is_started, consumer.is_confirmed = True, False
            consumer.owned = frozenset(
                each for partitions in by_thread.values() for each in partitions
            )
            request = StartFetcherRequest(
                consumer_id=consumer.id,
                ownership_info=[
                    ThreadOwnership(
                        consumer_thread_id=thread,
                        assigned_parts=[self._start_offset(group, each) for each in partitions],
                    )
                    for thread, partitions in by_thread.items()
                ],
                brokers_info=list(self.brokers),
            )
            group.waiting[consumer.connection] = self._send(
                outcome, RequestKind.START_FETCHER, consumer, request
            )

    def _start_offset(self, group: PushGroup, partition: TopicPartition) -> PartitionOffset:
        return PartitionOffset(
            topic=partition.topic,
            partition=partition_name(self.settings.broker_id, partition.partition),
            offset=group.offsets.get(partition, NO_OFFSET),
        )

    def _record_owners(self, outcome: Outcome, group: PushGroup) -> None:
        """Record the assignment in ZooKeeper: step 4.6."""
        for partition in [each for each in group.owners if each not in group.plan]:
            self._write_owner(outcome, group, partition, None)
        for partition, thread in group.plan.items():
            self._write_owner(outcome, group, partition, thread)

    def _write_owner(
        self, outcome: Outcome, group: PushGroup, partition: TopicPartition, thread: str | None
    ) -> None:
        """Record the owner of a partition, unless ZooKeeper has it with its session timeout."""
        timeout_ms = (
            0 if thread is None else group.consumers[consumer_of(thread)].session_timeout_ms
        )
        record = OwnerRecord(
            group_id=group.id,
            topic=partition.topic,
            partition=partition.partition,
            thread=thread,
            session_timeout_ms=timeout_ms,
        )
        if group.owners.get(partition) != record:
            self._write(outcome, record)

    def _delete_owners(self, outcome: Outcome, group: PushGroup) -> None:
        for partition in list(group.owners):
            self._write_owner(outcome, group, partition, None)

    # Failed attempts

    def _on_late(
        self, outcome: Outcome, consumer: RegisteredConsumer, watcher: WatcherTimer
    ) -> None:
        """Handle the expiry of a StopFetcher or StartFetcher request: step 5.

        A request of an earlier attempt may expire during the current one, which continues.
        """
        group = self.groups[consumer.group_id]
        if group.waiting.get(consumer.connection) == watcher:
            self._fail_attempt(outcome, group)

    def _fail_attempt(self, outcome: Outcome, group: PushGroup) -> None:
        """Back off before the next attempt, or give up with an error."""
        group.failed_attempts += 1
        if group.failed_attempts > self.settings.rebalance_retries_max:
            outcome.failed_rebalances[group.id] = f"{group.failed_attempts} attempts failed"
            self._finish(outcome, group)
        else:
            self._back_off(outcome, group)

    def _back_off(self, outcome: Outcome, group: PushGroup) -> None:
        """End the attempt, and schedule the next one, unless it is scheduled."""
        self._end_attempt(group)
        if group.phase is not RebalancePhase.BACKING_OFF:
            group.phase = RebalancePhase.BACKING_OFF
            outcome.arm_timer(BackoffTimer(group.id), self.settings.rebalance_backoff_ms)

    def _end_attempt(self, group: PushGroup) -> None:
        group.waiting.clear()
        group.participants.clear()
        group.plan = {}

    def _on_backoff_over(self, outcome: Outcome, group: PushGroup) -> None:
        if not self._begin_attempt(outcome, group):
            self._finish(outcome, group)

    # Consumers that have to register again

    def _await_owners(self, outcome: Outcome, group: PushGroup) -> None:
        """Wait for the consumers that own partitions in ZooKeeper."""
        awaited = {
            consumer_of(record.thread): record.session_timeout_ms
            for record in group.owners.values()
            if record.thread is not None
        }
        if awaited:
            self._wait_for(outcome, group, awaited)

    def _wait_for(self, outcome: Outcome, group: PushGroup, awaited: dict[str, int]) -> None:
        """Wait until these consumers have registered again or their sessions are over.

        A consumer counts its session from the last request that it got, which the coordinator may
        have sent earlier. So the wait is a third longer.
        """
        group.awaited = awaited
        timeout_ms = max(awaited.values())
        outcome.arm_timer(RegistrationTimer(group.id), timeout_ms + timeout_ms // 3)

    def _end_wait(self, outcome: Outcome, group: PushGroup) -> None:
        outcome.cancel_timer(RegistrationTimer(group.id))
        group.awaited.clear()
        if group.consumers:
            self._enqueue_if_due(outcome, group)
        else:
            self._clear(outcome, group)

    def _commit(self, outcome: Outcome, group: PushGroup) -> None:
        """Write the offsets that are not in ZooKeeper yet."""
        for partition in sorted(group.uncommitted):
            self._write(
                outcome,
                ConsumedOffsetRecord(
                    group_id=group.id,
                    topic=partition.topic,
                    partition=partition.partition,
                    offset=group.offsets[partition],
                ),
            )
