"""Everything that can happen to a world, by name. Each function says whether it did."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from partage.lab.clock import DAWN_MS
from partage.lab.consumer import Process
from partage.lab.options import LATE_MS
from partage.lab.storage import Storage
from partage.lab.strangers import Stranger
from partage.log.layout import MARKERS
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC

if TYPE_CHECKING:
    from partage.lab.world import World

_MEMBERS_MAX: Final = 6

Fault = Callable[["World", Random], bool]


def _one(world: World, rng: Random) -> Process | None:
    members = world.members()
    return rng.choice(members) if members else None


# Members.


def member_joins(world: World, rng: Random) -> bool:
    if len(world.members()) >= _MEMBERS_MAX:
        return False
    world.add_member("h" if world.options.has_second_group and rng.random() < 0.2 else "g")
    return True


def member_crashes(world: World, rng: Random) -> bool:
    member = _one(world, rng)
    if member is not None:
        member.crash(silently=rng.random() < 0.5)
    return member is not None


def member_restarts(world: World, rng: Random) -> bool:
    member = _one(world, rng)
    if member is not None:
        member.crash(silently=rng.random() < 0.5)
        made_of = member.copied(world.fresh_name())
        world.clock.later(rng.choice((0, 100, 2_000)), lambda: _restart(world, made_of))
    return member is not None


def _restart(world: World, made_of: dict[str, object]) -> None:
    world.add_process(**made_of)


def member_leaves(world: World, rng: Random) -> bool:
    member = _one(world, rng)
    if member is not None:
        member.leave()
    return member is not None


def member_pauses(world: World, rng: Random) -> bool:
    member = _one(world, rng)
    if member is not None:
        session_ms = world.options.session_timeout_ms
        member.pause(rng.choice((500, session_ms // 2, session_ms + 1_000, 3 * session_ms)))
    return member is not None


def member_polls_late(world: World, rng: Random) -> bool:
    member = _one(world, rng)
    if member is not None:
        late_ms = world.options.max_poll_interval_ms + rng.choice((-2_000, 2_000))
        member.reading.late_until_ms = world.now_ms + late_ms
    return member is not None


def listener_dawdles(world: World, rng: Random) -> bool:
    member = _one(world, rng)
    if member is not None:
        member.is_slow = True
        world.clock.later(15_000, lambda: setattr(member, "is_slow", False))
    return member is not None


def leader_never_assigns(world: World, rng: Random) -> bool:
    member = _one(world, rng)
    if member is not None:
        member.is_wedged = True
        world.clock.later(15_000, lambda: setattr(member, "is_wedged", False))
    return member is not None


def assignor_fails(world: World, rng: Random) -> bool:
    member = _one(world, rng)
    if member is not None:
        member.fails_to_assign = rng.choice((1, 2))
        member.rejoin()
    return member is not None


def member_rejoins(world: World, rng: Random) -> bool:
    member = _one(world, rng)
    if member is not None:
        member.rejoin()
    return member is not None


def subscription_changes(world: World, rng: Random) -> bool:
    from partage.lab.world import SUBSCRIPTIONS

    member = rng.choice(world.alive) if world.alive else None
    if member is not None:
        member.subscribe(rng.choice(SUBSCRIPTIONS))
    return member is not None


def instance_id_is_used_twice(world: World, rng: Random) -> bool:
    static = [m for m in world.members() if m.instance_id is not None]
    if not static:
        return False
    made_of = rng.choice(static).copied(world.fresh_name())
    world.add_process(**made_of)
    return True


def partitions_are_added(world: World, rng: Random) -> bool:
    if sum(world.partition_counts.values()) >= 10 or not world.broker.is_up:
        return False
    topic = rng.choice(("t", "u"))
    world.add_partition(topic)
    for process in world.alive:
        process.later(rng.choice((0, 500, 3_000)), process.notice_metadata)
    return True


# The network.


def connection_resets(world: World, rng: Random) -> bool:
    connections = [c for c in world.network.connections if c.is_open]
    if not connections:
        return False
    connection = rng.choice(connections)
    for way in (connection.up, connection.down):
        way.reset(rng.randrange(way.unread + 1))
    return True


def answer_is_lost(world: World, rng: Random) -> bool:
    connections = [c for c in world.network.connections if c.is_open]
    if not connections:
        return False
    connection = rng.choice(connections)
    connection.up.reset(connection.up.unread)  # what was asked is done, and nobody hears of it
    connection.down.reset(0)
    return True


def broker_end_vanishes(world: World, rng: Random) -> bool:
    connections = [c for c in world.network.connections if c.is_open]
    if not connections:
        return False
    connection = rng.choice(connections)
    connection.up.reset(0)
    connection.down.vanish()
    return True


def requests_are_cut_off(world: World, rng: Random) -> bool:
    return _cut(world, rng, ("up",))


def answers_are_cut_off(world: World, rng: Random) -> bool:
    return _cut(world, rng, ("down",))


def member_is_cut_off(world: World, rng: Random) -> bool:
    return _cut(world, rng, ("up", "down"))


def _cut(world: World, rng: Random, ways: tuple[str, ...]) -> bool:
    member = _one(world, rng)
    if member is not None:
        for_ms = rng.choice((1_000, 4_000, 12_000))
        # What was held back arrives, when everything has healed, as soon as what was slow.
        left_ms = DAWN_MS + world.options.safety_ms + LATE_MS - world.now_ms
        for_ms = min(for_ms, left_ms - 1)
        for way in ways:
            world.network.cut(member.name, way, for_ms)
    return member is not None


def network_slows_down(world: World, rng: Random) -> bool:
    world.network.slow_down(rng.choice((500, 3_000, 8_000)), rng.choice((2_000, 8_000)))
    return True


def connections_are_refused(world: World, rng: Random) -> bool:
    world.network.refuse(rng.choice((500, 5_000)))
    return True


# The broker and its disk.


def broker_is_killed(world: World, rng: Random) -> bool:
    if world.broker.is_up:
        world.broker.die("it is killed")
        return True
    return False


def power_fails(world: World, rng: Random) -> bool:
    if world.broker.is_up:
        world.broker.lose_power()
        return True
    return False


def power_fails_in_a_write(world: World, rng: Random) -> bool:
    """Before one of the operations that come next: of a group of writes, of a recovery."""
    world.broker.disk.fail_after = rng.randrange(12)
    if rng.random() < 0.3 and world.broker.is_up:
        world.broker.die("it is killed")
    return True


def broker_pauses(world: World, rng: Random) -> bool:
    session_ms = world.options.session_timeout_ms
    if not world.broker.is_up:
        return False
    world.broker.pause(rng.choice((300, session_ms // 2, session_ms + 500, 2 * session_ms)))
    return True


def disk_slows_down(world: World, rng: Random) -> bool:
    slow_ms = rng.choice((200, 1_000, 4_000))
    world.broker.disk_slow = (world.now_ms + rng.choice((2_000, 8_000)), slow_ms)
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
    disk = world.broker.disk
    disk.refuses[operation] = code

    def heal() -> None:
        disk.refuses.pop(operation, None)

    world.clock.later(rng.choice((50, 1_000, 5_000)), heal)
    return True


def bit_flips(world: World, rng: Random) -> bool:
    """While the broker is down a bit of the coordinator's log changes, until that is noticed.

    It is one of those that the markers know to be acknowledged: behind them a changed bit looks
    like a write that was torn, and the log is cut there.
    """
    disk = world.broker.disk
    if world.damage is not None:
        return False
    if world.broker.is_up:
        world.broker.die("it is killed")
    sizes = Storage.acknowledged(disk, OFFSETS_TOPIC)
    paths = [path for path, size in sizes.items() if size]
    if not paths:
        return False
    path = rng.choice(paths)
    return _damage(world, path, rng.randrange(sizes[path]))


def _damage(world: World, path: str, position: int) -> bool:
    disk = world.broker.disk
    disk.damage(path, position)
    value = disk.peek(path, position)
    assert value is not None
    world.damage = (path, position, value)
    world.has_scars = True
    return True


def markers_are_damaged(world: World, rng: Random) -> bool:
    """While the broker is down a bit of the file of markers changes, until that is noticed."""
    disk = world.broker.disk
    if world.damage is not None or MARKERS not in disk.names(""):
        return False
    if world.broker.is_up:
        world.broker.die("it is killed")
    if not disk.size(MARKERS):
        return False
    return _damage(world, MARKERS, rng.randrange(disk.size(MARKERS)))


def log_is_compacted(world: World, rng: Random) -> bool:
    """Compaction runs; sometimes the power fails in the middle of it."""
    if rng.random() < 0.3:
        world.broker.disk.fail_after = rng.randrange(30)
    return world.broker.upkeep.compact()


# Strangers.


def _stranger(name: str) -> Fault:
    def speaks(world: World, rng: Random) -> bool:
        return bool(getattr(Stranger(world, rng), name)())

    return speaks


def many_join_at_once(world: World, rng: Random) -> bool:
    for _ in range(min(12, 2 * world.options.members_max)):
        Stranger(world, rng).join()
    return True


FAULTS: Final[dict[str, Fault]] = {
    fault.__name__: fault
    for fault in (
        member_joins,
        member_crashes,
        member_restarts,
        member_leaves,
        member_pauses,
        member_polls_late,
        listener_dawdles,
        leader_never_assigns,
        assignor_fails,
        member_rejoins,
        subscription_changes,
        instance_id_is_used_twice,
        partitions_are_added,
        connection_resets,
        answer_is_lost,
        broker_end_vanishes,
        requests_are_cut_off,
        answers_are_cut_off,
        member_is_cut_off,
        network_slows_down,
        connections_are_refused,
        broker_is_killed,
        power_fails,
        power_fails_in_a_write,
        broker_pauses,
        disk_slows_down,
        writes_fail,
        disk_is_full,
        syncs_fail,
        reads_fail,
        bit_flips,
        markers_are_damaged,
        log_is_compacted,
        many_join_at_once,
    )
} | {
    f"stranger_{sentence}": _stranger(name)
    for sentence, name in {
        "heartbeats": "heartbeat",
        "commits": "commit",
        "syncs": "sync",
        "removes_a_member": "leave",
        "joins": "join",
        "reads_offsets": "read_offsets",
        "looks": "look",
        "deletes_the_group": "delete_group",
        "deletes_offsets": "delete_offsets",
        "repeats_a_request": "repeat",
        "babbles": "babble",
    }.items()
}
KINDS: Final = tuple(FAULTS)
