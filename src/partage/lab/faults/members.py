"""Faults and actions of members, their subscriptions and topics."""

from __future__ import annotations

from random import Random
from typing import Final

from partage.lab.clients.consumer import ConsumerProcess
from partage.lab.names import SUBSCRIPTIONS
from partage.lab.world import World

_MEMBERS_MAX: Final = 6


def pick_member(world: World, rng: Random) -> ConsumerProcess | None:
    """Return a random member, or None if there is none."""
    members = world.members()
    return rng.choice(members) if members else None


def member_joins(world: World, rng: Random) -> bool:
    if len(world.members()) >= _MEMBERS_MAX:
        return False
    world.add_member("h" if world.options.has_second_group and rng.random() < 0.2 else "g")
    return True


def member_crashes(world: World, rng: Random) -> bool:
    member = pick_member(world, rng)
    if member is not None:
        member.crash(silently=rng.random() < 0.5)
    return member is not None


def member_restarts(world: World, rng: Random) -> bool:
    member = pick_member(world, rng)
    if member is not None:
        member.crash(silently=rng.random() < 0.5)
        arguments = member.restart_arguments(world.new_process_name())
        world.clock.call_later(rng.choice((0, 100, 2_000)), lambda: _restart(world, arguments))
    return member is not None


def _restart(world: World, arguments: dict[str, object]) -> None:
    world.add_process(**arguments)


def member_leaves(world: World, rng: Random) -> bool:
    member = pick_member(world, rng)
    if member is not None:
        member.leave()
    return member is not None


def member_pauses(world: World, rng: Random) -> bool:
    member = pick_member(world, rng)
    if member is not None:
        session_ms = world.options.session_timeout_ms
        member.pause(rng.choice((500, session_ms // 2, session_ms + 1_000, 3 * session_ms)))
    return member is not None


def member_polls_late(world: World, rng: Random) -> bool:
    member = pick_member(world, rng)
    if member is not None:
        late_ms = world.options.max_poll_interval_ms + rng.choice((-2_000, 2_000))
        member.poll_loop.no_poll_until_ms = world.now_ms + late_ms
    return member is not None


def listener_is_slow(world: World, rng: Random) -> bool:
    member = pick_member(world, rng)
    if member is not None:
        member.poll_loop.is_listener_slow = True
        world.clock.call_later(15_000, member.poll_loop.end_slowness)
    return member is not None


def assignor_hangs(world: World, rng: Random) -> bool:
    member = pick_member(world, rng)
    if member is not None:
        member.assignor_runner.is_hung = True
        world.clock.call_later(15_000, member.release_assignor)
    return member is not None


def assignor_fails(world: World, rng: Random) -> bool:
    member = pick_member(world, rng)
    if member is not None:
        member.assignor_runner.failures_left = rng.choice((1, 2))
        member.request_rejoin()
    return member is not None


def member_rejoins(world: World, rng: Random) -> bool:
    member = pick_member(world, rng)
    if member is not None:
        member.request_rejoin()
    return member is not None


def subscription_changes(world: World, rng: Random) -> bool:
    member = rng.choice(world.live_processes) if world.live_processes else None
    if member is not None:
        member.subscribe(rng.choice(SUBSCRIPTIONS))
    return member is not None


def instance_id_is_used_twice(world: World, rng: Random) -> bool:
    static = [m for m in world.members() if m.instance_id is not None]
    if not static:
        return False
    arguments = rng.choice(static).restart_arguments(world.new_process_name())
    world.add_process(**arguments)
    return True


def partitions_are_added(world: World, rng: Random) -> bool:
    if sum(world.partition_counts.values()) >= 10 or not world.broker.is_up:
        return False

    def notify() -> None:
        for process in world.live_processes:
            process.call_later(rng.choice((0, 500, 3_000)), process.on_metadata_changed)

    world.add_partition(rng.choice(("t", "u")), notify)
    return True
