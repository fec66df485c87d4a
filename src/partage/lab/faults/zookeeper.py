"""Faults of ZooKeeper and of its registrations, in worlds with several brokers.

In them a broker keeps its session.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from partage.lab.history import RegistrationRemoved
from partage.lab.names import broker_name
from partage.lab.world import World

#: Another broker takes over the shards of a broker before it learns that it has no registration.
#: In a slow ZooKeeper this takes so long that both may answer members.
_DELAY_FOR_REMOVALS_MAX_MS: Final = 20


def coordinator_waits_for_zookeeper(world: World, rng: Random) -> bool:
    """Let ZooKeeper answer the coordinator late, as with a slow disk. The session lives."""
    coordinator = world.coordinator()
    if coordinator is None or world.zookeeper is None:
        return False
    timeout_ms = world.options.zookeeper_timeout_ms
    # the sessions of members end while their heartbeats wait
    long_ms = timeout_ms + world.options.session_timeout_ms + 1_000
    for_ms = rng.choice((timeout_ms // 2, timeout_ms + 500, long_ms, long_ms))
    world.zookeeper.stall(broker_name(coordinator.broker_id), for_ms)
    return True


def zookeeper_refuses_appends(world: World, rng: Random) -> bool:
    """Refuse the next appends of the coordinator, as with a full quota."""
    coordinator = world.coordinator()
    if coordinator is None or world.zookeeper is None:
        return False
    world.zookeeper.refuse_appends(broker_name(coordinator.broker_id), rng.choice((1, 1, 2, 5)))
    return True


def registration_is_removed(world: World, rng: Random) -> bool:
    """Remove the coordinator's registration, as an operator can. Its session lives."""
    coordinator, servers = world.coordinator(), world.zookeeper
    if coordinator is None or servers is None or coordinator.is_paused:
        return False
    if world.options.zookeeper_delay_max_ms > _DELAY_FOR_REMOVALS_MAX_MS:
        return False
    if servers.is_disturbed(broker_name(coordinator.broker_id)):
        return False
    if not servers.remove_node(coordinator.registration_path):
        return False
    world.append_history(RegistrationRemoved(at_ms=world.now_ms, broker=coordinator.broker_id))
    return True


FAULTS: Final[tuple[Callable[[World, Random], bool], ...]] = (
    coordinator_waits_for_zookeeper,
    zookeeper_refuses_appends,
    registration_is_removed,
)
