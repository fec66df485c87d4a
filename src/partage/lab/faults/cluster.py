"""Faults of brokers that share a ZooKeeper.

The four crash points of a coordinator are those of the proposal of Kafka's group protocol
("Handling Coordinator Failures"): before and after a generation is stored, before and after its
assignment is stored, each before any response is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from partage.coordinator.records import GroupRecord, KeyedRecord
from partage.lab.history import CrashPoint
from partage.lab.names import broker_name
from partage.lab.world import World


def broker_is_cut_off_from_zookeeper(world: World, rng: Random) -> bool:
    assert world.zookeeper is not None
    timeout_ms = world.options.zookeeper_timeout_ms
    for_ms = rng.choice((500, timeout_ms // 2, timeout_ms + 500, 3 * timeout_ms))
    world.zookeeper.cut(broker_name(rng.choice(world.brokers).broker_id), for_ms)
    return True


def coordinator_is_cut_off_from_zookeeper(world: World, rng: Random) -> bool:
    coordinator = world.coordinator()
    if coordinator is None or world.zookeeper is None:
        return False
    timeout_ms = world.options.zookeeper_timeout_ms
    for_ms = rng.choice((timeout_ms // 2, timeout_ms + 500, 3 * timeout_ms))
    world.zookeeper.cut(broker_name(coordinator.broker_id), for_ms)
    return True


def coordinator_is_cut_off_with_its_server(world: World, rng: Random) -> bool:
    """Cut off the coordinator and its ZooKeeper server from the ZooKeeper leader. The server still
    responds to pings.
    """
    coordinator = world.coordinator()
    if coordinator is None or world.zookeeper is None:
        return False
    timeout_ms = world.options.zookeeper_timeout_ms
    world.zookeeper.cut_server(
        broker_name(coordinator.broker_id), timeout_ms * rng.choice((1, 2, 3))
    )
    return True


def coordinator_is_killed(world: World, rng: Random) -> bool:
    coordinator = world.coordinator()
    if coordinator is not None:
        coordinator.die("killed")
    return coordinator is not None


def coordinator_pauses(world: World, rng: Random) -> bool:
    """Pause the coordinator for about its session timeout: it may still believe that it owns the
    groups.
    """
    coordinator = world.coordinator()
    if coordinator is None or coordinator.is_paused:
        return False
    timeout_ms = world.options.zookeeper_timeout_ms
    coordinator.pause(timeout_ms * rng.choice((5, 9, 10, 11, 13, 20)) // 10)
    return True


def log_is_merged(world: World, rng: Random) -> bool:
    coordinator = world.coordinator()
    return coordinator is not None and coordinator.merge("g")


def coordinator_is_stopped(world: World, rng: Random) -> bool:
    """Shut the coordinator down cleanly: other brokers take its shards over at once."""
    coordinator = world.coordinator()
    return coordinator is not None and coordinator.shut_down(rng.choice((0, 20, 1_000)))


def shard_fails(world: World, rng: Random) -> bool:
    """Fail a shard as a bug would: its broker drops it and acquires it again."""
    coordinator = world.coordinator()
    if coordinator is None or coordinator.is_paused:
        return False
    coordinator.host_of("g").reload()
    return True


def _is_generation(record: KeyedRecord) -> bool:
    return isinstance(record, GroupRecord) and record.awaiting_sync


def _is_assignment(record: KeyedRecord) -> bool:
    return isinstance(record, GroupRecord) and not record.awaiting_sync and bool(record.members)


CRASH_POINTS: Final = (
    CrashPoint("dies_before_the_generation_is_stored", False, _is_generation),
    CrashPoint("dies_after_the_generation_is_stored", True, _is_generation),
    CrashPoint("dies_before_the_assignment_is_stored", False, _is_assignment),
    CrashPoint("dies_after_the_assignment_is_stored", True, _is_assignment),
)


def _arm(point: CrashPoint) -> Callable[[World, Random], bool]:
    def arm(world: World, rng: Random) -> bool:
        if world.crash_point is not None:
            return False
        world.crash_point = point
        return True

    arm.__name__ = point.kind
    return arm


FAULTS: Final[tuple[Callable[[World, Random], bool], ...]] = (
    broker_is_cut_off_from_zookeeper,
    coordinator_is_cut_off_from_zookeeper,
    coordinator_is_cut_off_with_its_server,
    coordinator_is_killed,
    coordinator_pauses,
    log_is_merged,
    *map(_arm, CRASH_POINTS),
    coordinator_is_stopped,
    shard_fails,
)
