"""Faults of a broker and its disk."""

from __future__ import annotations

import errno
from random import Random
from typing import Final

from partage.lab.brokers.broker import SimulatedBroker
from partage.lab.brokers.stored_partitions import acknowledged_lengths
from partage.lab.context import Damage
from partage.lab.world import World
from partage.log.layout import CHECKPOINT_FILE
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC

#: A correction by NTP, a wrong daylight saving time, a wrong day.
_WALL_CLOCK_STEPS_MS: Final = (1, 3_000, 60_000, 3_600_000, 86_400_000)


def _pick_broker(world: World, rng: Random) -> SimulatedBroker:
    return world.broker if len(world.brokers) == 1 else rng.choice(world.brokers)


def _pick_with_partitions(world: World, rng: Random) -> SimulatedBroker:
    """Return a broker with partitions of topics on its disk."""
    if not world.options.transactional_producers or world.output_leader_count == 1:
        return world.broker
    return rng.choice(world.brokers[: world.output_leader_count])


def broker_is_killed(world: World, rng: Random) -> bool:
    broker = _pick_broker(world, rng)
    if broker.is_up:
        broker.die("killed")
        return True
    return False


def power_fails(world: World, rng: Random) -> bool:
    broker = _pick_broker(world, rng)
    if broker.is_up:
        broker.lose_power()
        return True
    return False


def power_fails_in_a_write(world: World, rng: Random) -> bool:
    """Cut the power before one of the next disk operations, such as a write or a recovery."""
    broker = _pick_with_partitions(world, rng)
    broker.disk.crash_after = rng.randrange(12)
    if rng.random() < 0.3 and broker.is_up:
        broker.die("killed")
    return True


def broker_pauses(world: World, rng: Random) -> bool:
    session_ms = world.options.session_timeout_ms
    broker = _pick_broker(world, rng)
    if not broker.is_up:
        return False
    broker.pause(rng.choice((300, session_ms // 2, session_ms + 500, 2 * session_ms)))
    return True


def wall_clock_steps(world: World, rng: Random) -> bool:
    """Step the wall clock of a broker's machine, as NTP or an operator would.

    Monotonic time does not change. A process that starts later begins with the new time.
    """
    broker = _pick_broker(world, rng)
    broker.step_wall_clock(rng.choice((-1, 1)) * rng.choice(_WALL_CLOCK_STEPS_MS))
    return True


def disk_slows_down(world: World, rng: Random) -> bool:
    slow_ms = rng.choice((200, 1_000, 4_000))
    broker = _pick_with_partitions(world, rng)
    broker.disk_slow = (world.now_ms + rng.choice((2_000, 8_000)), slow_ms)
    return True


def writes_fail(world: World, rng: Random) -> bool:
    return _refuse(world, rng, "write", errno.EIO)


def disk_is_full(world: World, rng: Random) -> bool:
    return _refuse(world, rng, "write", errno.ENOSPC)


def syncs_fail(world: World, rng: Random) -> bool:
    return _refuse(world, rng, "sync", errno.EIO)


def reads_fail(world: World, rng: Random) -> bool:
    return _refuse(world, rng, "read", errno.EIO)


def _refuse(world: World, rng: Random, operation: str, code: int) -> bool:
    disk = _pick_with_partitions(world, rng).disk
    disk.io_errors[operation] = code

    def heal() -> None:
        disk.io_errors.pop(operation, None)

    world.clock.call_later(rng.choice((50, 1_000, 5_000)), heal)
    return True


def bit_flips(world: World, rng: Random) -> bool:
    """Flip a bit of the coordinator's log while the broker is down, until a broker detects it.

    The bit is in the acknowledged part according to the checkpoints. Beyond that, a flipped bit
    looks like a torn write, and the log is truncated there.
    """
    disk = world.broker.disk
    if world.damage is not None or len(world.brokers) > 1:  # a cluster keeps it in ZooKeeper
        return False
    if world.broker.is_up:
        world.broker.die("killed")
    sizes = acknowledged_lengths(disk, OFFSETS_TOPIC)
    paths = [path for path, size in sizes.items() if size]
    if not paths:
        return False
    path = rng.choice(paths)
    return _damage(world, path, rng.randrange(sizes[path]))


def _damage(world: World, path: str, position: int) -> bool:
    disk = world.broker.disk
    disk.damage(path, position)
    assert disk.is_damaged(path, position)
    world.damage = Damage(disk, path, position)
    world.was_damaged = True
    return True


def checkpoints_are_damaged(world: World, rng: Random) -> bool:
    """Flip a bit of the checkpoint file while the broker is down, until a broker detects it."""
    disk = world.broker.disk
    if world.damage is not None or CHECKPOINT_FILE not in disk.names(""):
        return False
    if world.broker.is_up:
        world.broker.die("killed")
    if not disk.size(CHECKPOINT_FILE):
        return False
    return _damage(world, CHECKPOINT_FILE, rng.randrange(disk.size(CHECKPOINT_FILE)))


def log_is_compacted(world: World, rng: Random) -> bool:
    """Compact the coordinator's log, sometimes with a power failure in the middle."""
    if rng.random() < 0.3:
        world.broker.disk.crash_after = rng.randrange(30)
    return world.broker.compact()


def logs_are_compacted(world: World, rng: Random) -> bool:
    """Compact all compacted logs of a broker, sometimes with a power failure in the middle."""
    broker = _pick_with_partitions(world, rng)
    if rng.random() < 0.15:
        broker.disk.crash_after = rng.randrange(60)
    return broker.compact()
