"""Invariants of the coordinator, which tests check after each event.

1. A connection has one consumer, and each consumer belongs to its group.
2. The next ping of every consumer is scheduled.
3. A handler rebalances one group at a time, and exactly its group is not idle.
4. A handler waits only for registered consumers, and each has a request without a response.
5. No partition belongs to two started consumers of a group.
6. A group with a set rebalance bit has a task, is frozen, or awaits earlier consumers.
7. The queue of a handler does not grow beyond its size.
8. Offsets exist in memory for all partitions that are not committed yet.
"""

from __future__ import annotations

from partage.model.topic_partition import TopicPartition
from partage.proposals.broker_side.coordinator import PushCoordinator
from partage.proposals.broker_side.purgatory import RequestKind
from partage.proposals.broker_side.registry import Group, RebalancePhase


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
    for handler in handlers.handlers:
        assert len(handler.queue) <= coordinator.settings.rebalance_queue_size, "queue too long"
    for group in coordinator.groups.values():
        _check_group(coordinator, group)


def _check_group(coordinator: PushCoordinator, group: Group) -> None:
    kinds = {
        RebalancePhase.STOPPING: RequestKind.STOP_FETCHER,
        RebalancePhase.STARTING: RequestKind.START_FETCHER,
    }
    kind = kinds.get(group.phase)
    assert bool(group.waiting) == (kind is not None), f"{group.phase} waits for {group.waiting}"
    for connection in group.waiting:
        assert connection in coordinator.consumers, f"{group.id} waits for a lost consumer"
        assert kind is not None
        assert coordinator.purgatories[kind].has_waiting(connection), "no request without response"
    owners: dict[TopicPartition, str] = {}
    for consumer in group.consumers.values():
        for partition in consumer.owned if consumer.is_started else ():
            other = owners.setdefault(partition, consumer.id)
            assert other == consumer.id, f"{partition} belongs to {other} and {consumer.id}"
    if group.is_pending:
        is_queued = coordinator.handlers.has_task(group.id)
        assert is_queued or not group.may_rebalance, f"{group.id} is pending without a task"
    assert group.uncommitted <= group.offsets.keys(), "an uncommitted offset is unknown"
