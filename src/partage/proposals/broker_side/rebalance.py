"""The rebalance of groups, steps 1 to 5 of section 9."""

from __future__ import annotations

from abc import ABC, abstractmethod

from partage.model.topic_partition import TopicPartition
from partage.proposals.broker_side.events import BackoffTimer, Outcome, RegistrationTimer
from partage.proposals.broker_side.handlers import RebalanceHandler, RebalanceHandlers
from partage.proposals.broker_side.messages import (
    PartitionOffset,
    StartFetcherRequest,
    StopFetcherRequest,
    ThreadOwnership,
)
from partage.proposals.broker_side.purgatory import Purgatory, RequestKind
from partage.proposals.broker_side.records import (
    OffsetRecord,
    OwnerRecord,
    Record,
    consumer_of,
    partition_name,
)
from partage.proposals.broker_side.registry import (
    Group,
    RebalancePhase,
    RegisteredConsumer,
    assign_threads,
)
from partage.proposals.broker_side.settings import PushCoordinatorSettings, RebalanceMethod
from partage.proposals.machine import Connection
from partage.wire.types import Message

#: The offset of a partition without a committed one.
NO_OFFSET = -1


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
        self.groups: dict[str, Group] = {}
        self.consumers: dict[Connection, RegisteredConsumer] = {}
        self.topics: dict[str, int] = {}
        self.purgatories = {kind: Purgatory(kind) for kind in RequestKind}
        self.handlers = RebalanceHandlers(
            settings.rebalance_threadpool_size, settings.rebalance_queue_size
        )

    def _group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id)
            group.is_frozen = group_id in self.settings.frozen_groups
        return group

    def _write(self, outcome: Outcome, record: Record) -> None:
        self.groups[record.group_id].apply(record)
        outcome.records.append(record)

    @abstractmethod
    def _unregister(self, outcome: Outcome, group: Group, consumer: RegisteredConsumer) -> None:
        """Remove a consumer from the registry."""

    def _send(
        self,
        outcome: Outcome,
        kind: RequestKind,
        consumer: RegisteredConsumer,
        request: Message,
    ) -> None:
        """Send a request, and watch for its response."""
        outcome.send(consumer.connection, request)
        watcher = self.purgatories[kind].watch(consumer.connection)
        outcome.arm_timer(watcher, consumer.response_timeout_ms)

    # Requests to rebalance

    def _request_rebalance(self, outcome: Outcome, group: Group) -> None:
        """Set the rebalance bit, and give a handler the task. At most one is pending."""
        if group.is_pending or not group.consumers:
            return
        group.is_pending = True
        self._enqueue_if_due(outcome, group)

    def _enqueue_if_due(self, outcome: Outcome, group: Group) -> None:
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

    def _finish(self, outcome: Outcome, group: Group) -> None:
        """End the task of a group, and begin the handler's next one."""
        group.phase = RebalancePhase.IDLE
        group.waiting.clear()
        self._run(outcome, self.handlers.finish(group.id))

    def _rebalance_after_loss(self, outcome: Outcome, group: Group) -> None:
        """Request a rebalance after the loss of a consumer. An attempt in progress fails."""
        is_in_progress = group.phase is not RebalancePhase.IDLE
        self._request_rebalance(outcome, group)
        if is_in_progress:
            outcome.cancel_timer(BackoffTimer(group.id))
            group.failed_attempts = 0
            self._finish(outcome, group)

    # Attempts

    def _begin_attempt(self, outcome: Outcome, group: Group) -> bool:
        """Compute the assignment, and stop the fetchers if it is a new one (steps 1 to 4.1).

        Returns:
            False if no rebalance is necessary or possible now.
        """
        group.plan = assign_threads(group.consumers.values(), self.topics)
        if not group.consumers or not group.is_rebalance_needed(self._shares(group)):
            group.failed_attempts = 0
            return False
        if self.settings.rebalance_method is RebalanceMethod.CLOSE_CONNECTIONS:
            return self._close_connections(outcome, group)
        group.phase = RebalancePhase.STOPPING
        group.participants = list(group.consumers.values())
        group.waiting = {each.connection for each in group.participants}
        for consumer in group.participants:
            consumer.is_started = False
            request = StopFetcherRequest(consumer_id=consumer.id)
            self._send(outcome, RequestKind.STOP_FETCHER, consumer, request)
        return True

    def _close_connections(self, outcome: Outcome, group: Group) -> bool:
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
        group.is_pending = True
        self._wait_for(outcome, group, {each.id: each.session_timeout_ms for each in started})
        return False

    def _shares(self, group: Group) -> dict[str, frozenset[TopicPartition]]:
        """Return the partitions of each consumer that has some."""
        by_consumer: dict[str, list[TopicPartition]] = {}
        for partition, thread in group.plan.items():
            by_consumer.setdefault(consumer_of(thread), []).append(partition)
        return {each: frozenset(partitions) for each, partitions in by_consumer.items()}

    def _has_answered(self, group: Group, kind: RequestKind, consumer: RegisteredConsumer) -> bool:
        """Note the last response of a consumer; True if it was the last one of the phase.

        An earlier request that had expired may get its response first.
        """
        if self.purgatories[kind].has_waiting(consumer.connection):
            return False
        group.waiting.discard(consumer.connection)
        return not group.waiting

    def _on_stopped(self, outcome: Outcome, consumer: RegisteredConsumer, error_code: int) -> None:
        """Handle the response to StopFetcher: step 4.2."""
        group = self.groups[consumer.group_id]
        if group.phase is not RebalancePhase.STOPPING or consumer.connection not in group.waiting:
            return
        if error_code:
            self._fail_attempt(outcome, group)
        elif self._has_answered(group, RequestKind.STOP_FETCHER, consumer):
            self._start_fetchers(outcome, group)

    def _start_fetchers(self, outcome: Outcome, group: Group) -> None:
        """Commit the offsets and start the fetchers (steps 4.3 and 4.4)."""
        self._commit(outcome, group)
        group.phase = RebalancePhase.STARTING
        group.waiting = {each.connection for each in group.participants}
        threads: dict[str, dict[str, list[TopicPartition]]] = {}
        for partition, thread in sorted(group.plan.items()):
            of_consumer = threads.setdefault(consumer_of(thread), {})
            of_consumer.setdefault(thread, []).append(partition)
        for consumer in group.participants:
            by_thread = threads.get(consumer.id, {})
            consumer.is_started = True
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
            self._send(outcome, RequestKind.START_FETCHER, consumer, request)

    def _start_offset(self, group: Group, partition: TopicPartition) -> PartitionOffset:
        return PartitionOffset(
            topic=partition.topic,
            partition=partition_name(self.settings.broker_id, partition.partition),
            offset=group.offsets.get(partition, NO_OFFSET),
        )

    def _on_started(self, outcome: Outcome, consumer: RegisteredConsumer, error_code: int) -> None:
        """Handle the response to StartFetcher: step 4.5, then 4.6."""
        group = self.groups[consumer.group_id]
        if group.phase is not RebalancePhase.STARTING or consumer.connection not in group.waiting:
            return
        if error_code:
            self._fail_attempt(outcome, group)
        elif self._has_answered(group, RequestKind.START_FETCHER, consumer):
            self._record_owners(outcome, group)
            group.failed_attempts = 0
            self._finish(outcome, group)

    def _record_owners(self, outcome: Outcome, group: Group) -> None:
        for partition in [each for each in group.owners if each not in group.plan]:
            self._write_owner(outcome, group, partition, None)
        for partition, thread in group.plan.items():
            before = group.owners.get(partition)
            if before is None or before.thread != thread:
                self._write_owner(outcome, group, partition, thread)

    def _write_owner(
        self, outcome: Outcome, group: Group, partition: TopicPartition, thread: str | None
    ) -> None:
        timeout_ms = (
            0 if thread is None else group.consumers[consumer_of(thread)].session_timeout_ms
        )
        self._write(
            outcome,
            OwnerRecord(
                group_id=group.id,
                topic=partition.topic,
                partition=partition.partition,
                thread=thread,
                session_timeout_ms=timeout_ms,
            ),
        )

    def _delete_owners(self, outcome: Outcome, group: Group) -> None:
        for partition in list(group.owners):
            self._write_owner(outcome, group, partition, None)

    # Failed attempts

    def _on_late(self, outcome: Outcome, consumer: RegisteredConsumer) -> None:
        """Handle the expiry of a StopFetcher or StartFetcher request: step 5."""
        group = self.groups[consumer.group_id]
        if consumer.connection in group.waiting:
            self._fail_attempt(outcome, group)

    def _fail_attempt(self, outcome: Outcome, group: Group) -> None:
        """Back off before the next attempt, or give up with an error."""
        group.waiting.clear()
        group.failed_attempts += 1
        if group.failed_attempts > self.settings.rebalance_retries_max:
            group.failed_attempts = 0
            outcome.failed_rebalances.append(group.id)
            self._finish(outcome, group)
        else:
            group.phase = RebalancePhase.BACKING_OFF
            outcome.arm_timer(BackoffTimer(group.id), self.settings.rebalance_backoff_ms)

    def _on_backoff_over(self, outcome: Outcome, group: Group) -> None:
        if not self._begin_attempt(outcome, group):
            self._finish(outcome, group)

    # Consumers that have to register again

    def _await_owners(self, outcome: Outcome, group: Group) -> None:
        """Wait for the consumers that own partitions in ZooKeeper."""
        awaited = {
            consumer_of(record.thread): record.session_timeout_ms
            for record in group.owners.values()
            if record.thread is not None
        }
        if awaited:
            self._wait_for(outcome, group, awaited)

    def _wait_for(self, outcome: Outcome, group: Group, awaited: dict[str, int]) -> None:
        """Wait until these consumers have registered again or their sessions are over.

        A consumer counts its session from the last request that it got, which the coordinator may
        have sent earlier. So the wait is a third longer.
        """
        group.awaited = awaited
        timeout_ms = max(awaited.values())
        outcome.arm_timer(RegistrationTimer(group.id), timeout_ms + timeout_ms // 3)

    def _end_wait(self, outcome: Outcome, group: Group) -> None:
        outcome.cancel_timer(RegistrationTimer(group.id))
        group.awaited.clear()
        if not group.consumers:
            group.is_pending = False
            self._delete_owners(outcome, group)
        else:
            self._enqueue_if_due(outcome, group)

    def _commit(self, outcome: Outcome, group: Group) -> None:
        """Write the offsets that are not in ZooKeeper yet."""
        for partition in sorted(group.uncommitted):
            self._write(
                outcome,
                OffsetRecord(
                    group_id=group.id,
                    topic=partition.topic,
                    partition=partition.partition,
                    offset=group.offsets[partition],
                ),
            )
