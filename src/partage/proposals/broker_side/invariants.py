"""Invariants of the coordinator and of the consumer, which tests and worlds check after each event.

Coordinator:

1. A connection has one consumer, and each consumer belongs to its group.
2. The next ping of every consumer is scheduled, within a third of its session timeout.
3. A handler rebalances one group at a time, and exactly its group is not idle.
4. A handler waits only for registered consumers, and each has a request without a response.
5. No partition belongs to two started consumers of a group.
6. A group with a set rebalance bit has a task, is frozen, or awaits earlier consumers.
7. The queue of a handler does not grow beyond its size, and no group has two tasks.
8. Offsets exist in memory for all partitions that are not committed yet.
9. Exactly the groups with consumers subscribe, to exactly the topics of their consumers. A group
   subscribes by a wildcard only if one of its consumers did.
10. Exactly these timers are armed: the committer's while the coordinator is elected, the pings'
    while there are consumers, a back-off for each group that backs off, and the wait of each group
    that awaits earlier consumers.
11. Each request that a handler waits for has an armed watcher, and watchers exist only for requests
    without a response to registered consumers.
12. A group that backs off has failed at most as often as it may try again.

Consumer:

13. It reads, owns partitions and has a stall timer only while the coordinator serves it.
14. It reads only partitions of its assignment.
15. It waits for a response or an event, or has a timer. A closed consumer has none.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from partage.model.topic_partition import TopicPartition
from partage.proposals.broker_side.consumer import ConsumerState, ConsumerTimer, PushConsumer
from partage.proposals.broker_side.coordinator import PushCoordinator
from partage.proposals.broker_side.events import (
    BackoffTimer,
    CommitTimer,
    PingTimer,
    RegistrationTimer,
)
from partage.proposals.broker_side.purgatory import RequestKind, WatcherTimer
from partage.proposals.broker_side.registry import PushGroup, RebalancePhase

_KINDS = {
    RebalancePhase.STOPPING: RequestKind.STOP_FETCHER,
    RebalancePhase.STARTING: RequestKind.START_FETCHER,
}


def check(coordinator: PushCoordinator) -> None:
    """Raise `AssertionError` with details if an invariant does not hold."""
    for connection, consumer in coordinator.consumers.items():
        group = coordinator.groups[consumer.group_id]
        assert consumer.connection == connection, f"{consumer.id} has two connections"
        assert group.consumers.get(consumer.id) is consumer, f"{consumer.id} is in no group"
        assert coordinator.scheduler.has(connection), f"no ping of {consumer.id} is scheduled"
    members = sum(len(group.consumers) for group in coordinator.groups.values())
    assert members == len(coordinator.consumers), "a consumer has no connection"
    handlers = coordinator.handlers
    current = [each.current for each in handlers.handlers if each.current is not None]
    active = [
        group.id for group in coordinator.groups.values() if group.phase is not RebalancePhase.IDLE
    ]
    assert sorted(current) == sorted(active), f"{current} are handled, {active} are not idle"
    tasks = [task for handler in handlers.handlers for task in (*handler.queue, *handler.blocked)]
    assert len(set(tasks)) == len(tasks), f"a group has two tasks: {tasks}"
    for handler in handlers.handlers:
        assert len(handler.queue) <= coordinator.settings.rebalance_queue_size, "queue too long"
        if handler.blocked:
            full = coordinator.settings.rebalance_queue_size
            assert len(handler.queue) == full, "a task is blocked by a queue with room"
        assert handler.current is not None or not handler.queue, "a free handler has tasks"
    for group in coordinator.groups.values():
        _check_group(coordinator, group)
    _check_subscriptions(coordinator)


def check_timers(coordinator: PushCoordinator, armed: Mapping[Hashable, int]) -> None:
    """Raise `AssertionError` if other timers are armed than the state of the coordinator needs.

    Args:
        coordinator: The coordinator.
        armed: The deadlines of its armed timers.
    """
    groups = coordinator.groups.values()
    expected: set[Hashable] = {
        BackoffTimer(each.id) for each in groups if each.phase is RebalancePhase.BACKING_OFF
    }
    expected |= {RegistrationTimer(each.id) for each in groups if each.awaited}
    if coordinator.is_elected:
        expected.add(CommitTimer())
    watchers = {key for key in armed if isinstance(key, WatcherTimer)}
    others = set(armed) - watchers
    next_ms = coordinator.scheduler.next_ms
    if next_ms is not None:
        assert armed.get(PingTimer(), next_ms + 1) <= next_ms, f"no ping is sent at {next_ms}"
    assert others - {PingTimer()} == expected, f"{others} are armed, not {expected}"
    for key in watchers:
        assert key.connection in coordinator.consumers, f"{key} watches no consumer"
        waiting = coordinator.purgatories[key.kind].has_waiting(key.connection)
        assert waiting, f"{key} is armed after the response"
    for group in groups:
        missing = set(group.waiting.values()) - watchers
        assert not missing, f"{group.id} waits for {missing} without end"


def _check_group(coordinator: PushCoordinator, group: PushGroup) -> None:
    kind = _KINDS.get(group.phase)
    assert bool(group.waiting) == (kind is not None), f"{group.phase} waits for {group.waiting}"
    for connection, watcher in group.waiting.items():
        assert connection in coordinator.consumers, f"{group.id} waits for a lost consumer"
        assert watcher.kind is kind, f"{group.phase} waits for the response to {watcher.kind}"
        assert coordinator.purgatories[kind].has_waiting(connection), "no request without response"
    owners: dict[TopicPartition, str] = {}
    for consumer in group.consumers.values():
        for partition in consumer.owned if consumer.is_started else ():
            other = owners.setdefault(partition, consumer.id)
            assert other == consumer.id, f"{partition} belongs to {other} and {consumer.id}"
        most = coordinator.settings.ping_retries_max
        assert consumer.failed_pings <= most, f"{consumer.id} failed {consumer.failed_pings} pings"
    if group.is_pending:
        is_queued = coordinator.handlers.has_task(group.id)
        assert is_queued or not group.may_rebalance, f"{group.id} is pending without a task"
        assert group.consumers or group.awaited, f"{group.id} is pending without consumers"
    assert group.uncommitted <= group.offsets.keys(), "an uncommitted offset is unknown"
    assert group.failed_attempts <= coordinator.settings.rebalance_retries_max, "too many attempts"
    if group.phase is not RebalancePhase.IDLE:
        participants = {each.id for each in group.participants}
        assert participants <= group.consumers.keys(), "a lost consumer takes part in an attempt"


def _check_subscriptions(coordinator: PushCoordinator) -> None:
    for group in coordinator.groups.values():
        counts = [each.topic_count for each in group.consumers.values()]
        for topic in coordinator.topics:
            is_read = any(count.threads_of(topic) for count in counts)
            is_subscribed = group.id in coordinator.topic_groups.get(topic, ())
            # A lost consumer may leave a subscription of its group behind, until the group ends.
            assert is_subscribed or not is_read, f"{group.id} is not subscribed to {topic}"
        if not counts and not group.awaited:
            left = [topic for topic, ids in coordinator.topic_groups.items() if group.id in ids]
            assert not left, f"{group.id} has no consumers and subscribes to {left}"
        has_wildcard = any(count.is_wildcard for count in counts)
        is_wildcard = group.id in coordinator.wildcard_groups
        assert is_wildcard or not has_wildcard, f"{group.id} has no wildcard subscription"
        assert counts or group.awaited or not is_wildcard, (
            f"{group.id} has no consumers and a wildcard"
        )


def check_consumer(consumer: PushConsumer, armed: Mapping[Hashable, int]) -> None:
    """Raise `AssertionError` with details if an invariant does not hold.

    Args:
        consumer: The consumer.
        armed: The deadlines of its armed timers.
    """
    state = consumer.state
    is_served = state in (ConsumerState.REGISTERED, ConsumerState.FETCHING)
    if not is_served:
        assert not consumer.owned, f"{state} with partitions"
        assert not consumer._is_reading, f"{state}, and the consumer reads"
    assert consumer.owned or not consumer._is_reading, "the consumer reads without an assignment"
    notices_stalls = is_served or state is ConsumerState.REGISTERING
    assert (ConsumerTimer.STALL in armed) == notices_stalls, f"{state}, stall timer: {armed}"
    is_backing_off = state is ConsumerState.BACKING_OFF
    assert (ConsumerTimer.RETRY in armed) == is_backing_off, f"{state}, retry timer: {armed}"
    if state not in (ConsumerState.INITIAL, ConsumerState.BACKING_OFF, ConsumerState.CLOSED):
        assert ConsumerTimer.SILENCE in armed, f"{state} waits without end"
    if state is ConsumerState.CLOSED:
        assert not armed, f"a closed consumer has timers: {armed}"
