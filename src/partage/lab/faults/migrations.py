"""Faults and migrations of a group that has members of both protocols.

A migration is a rolling restart: the members of one protocol stop, one after the other, and each of
them is replaced by a member of the other protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from partage.coordinator.consumer_group.records import ConsumerGroupTombstone
from partage.coordinator.records import GroupRecord, GroupTombstone
from partage.lab.clients.classic_member import ClassicMember
from partage.lab.clients.group_member import HeartbeatMember, SimSubscription
from partage.lab.clients.rogue_member import RogueMember
from partage.lab.consumer_liveness import selected_names
from partage.lab.faults.consumers import server_assignors_hang
from partage.lab.history import CrashPoint, RecordsAppended
from partage.lab.names import CONSUMER_GROUP
from partage.lab.options import IN_FLIGHT_MAX_MS
from partage.lab.world import World

_MEMBERS_MAX: Final = 6
_RESTARTS_MS: Final = (0, 300, 2_000, 6_000)


def _pick(world: World, rng: Random) -> ClassicMember | None:
    members = [each for each in world.live_classic_members if each.is_subscribed]
    return rng.choice(members) if members else None


def _stop(member: ClassicMember, rng: Random) -> None:
    """Stop a process. A static member that leaves sends no LeaveGroup."""
    if rng.random() < 0.6:
        rng.choice((member.leave, member.drain))()
    else:
        member.crash(silently=rng.random() < 0.5)


def _upgrade(world: World, rng: Random, member: ClassicMember) -> None:
    """Replace a process by one with the consumer protocol."""
    if not member.is_alive or world.is_healed:
        return
    _stop(member, rng)
    selection = SimSubscription(tuple(sorted(member.topics)))
    world.clock.call_later(
        rng.choice(_RESTARTS_MS),
        lambda: world.add_consumer_member(member.instance_id, selection),
    )


def _downgrade(world: World, rng: Random, member: HeartbeatMember) -> None:
    """Replace a process by one with the classic protocol."""
    if not member.is_alive or world.is_healed:
        return
    if rng.random() < 0.6:
        member.leave(is_final=rng.random() < 0.5)
    else:
        member.crash(silently=rng.random() < 0.5)
    topics = frozenset(selected_names(member.selection))
    world.clock.call_later(
        rng.choice(_RESTARTS_MS), lambda: world.add_classic_member(member.instance_id, topics)
    )


def classic_consumer_joins(world: World, rng: Random) -> bool:
    if len(world.live_group_members) >= _MEMBERS_MAX:
        return False
    world.add_classic_member()
    return True


def classic_consumer_leaves(world: World, rng: Random) -> bool:
    member = _pick(world, rng)
    if member is not None:
        _stop(member, rng)
    return member is not None


def classic_consumer_restarts(world: World, rng: Random) -> bool:
    member = _pick(world, rng)
    if member is None:
        return False
    _stop(member, rng)
    world.clock.call_later(
        rng.choice(_RESTARTS_MS),
        lambda: world.add_classic_member(member.instance_id, member.topics),
    )
    return True


def classic_consumer_is_started_twice(world: World, rng: Random) -> bool:
    """Start a second process with the instance id of a member of either protocol."""
    ids = [each.instance_id for each in world.live_group_members]
    static = [instance_id for instance_id in ids if instance_id is not None]
    if not static:
        return False
    world.add_classic_member(rng.choice(static))
    return True


def classic_consumer_pauses(world: World, rng: Random) -> bool:
    member = _pick(world, rng)
    if member is not None:
        session_ms = world.options.session_timeout_ms
        member.pause(rng.choice((500, session_ms // 2, session_ms + 1_000, 3 * session_ms)))
    return member is not None


def classic_consumer_polls_late(world: World, rng: Random) -> bool:
    member = _pick(world, rng)
    if member is not None:
        late_ms = world.options.max_poll_interval_ms + rng.choice((-2_000, 2_000))
        member.poll_loop.no_poll_until_ms = world.now_ms + late_ms
    return member is not None


def classic_consumer_revokes_slowly(world: World, rng: Random) -> bool:
    member = _pick(world, rng)
    if member is not None:
        member.poll_loop.is_listener_slow = True
        world.clock.call_later(15_000, member.poll_loop.end_slowness)
    return member is not None


def classic_consumer_is_cut_off(world: World, rng: Random) -> bool:
    member = _pick(world, rng)
    if member is not None:
        for_ms = min(rng.choice((1_000, 4_000, 12_000)), IN_FLIGHT_MAX_MS - 1)
        for way in rng.choice((("up",), ("down",), ("up", "down"))):
            world.network.cut(member.name, way, for_ms)
    return member is not None


def classic_consumer_changes_topics(world: World, rng: Random) -> bool:
    member = _pick(world, rng)
    if member is not None:
        member.subscribe(world.draw_topics(rng))
    return member is not None


def classic_consumer_rejoins(world: World, rng: Random) -> bool:
    member = _pick(world, rng)
    if member is not None:
        member.request_rejoin()
    return member is not None


def leader_assigns_slowly(world: World, rng: Random) -> bool:
    """Let members wait for their leader, while a member with the consumer protocol joins.

    All other such members leave first, so that the group is downgraded.
    """
    members = world.live_classic_members
    if not members:
        return False
    for consumer in world.live_consumer_members:
        consumer.leave()
    for member in members:
        member.assignor_runner.is_hung = True
        world.clock.call_later(rng.choice((3_000, 6_000)), member.release_assignor)
    rng.choice(members).request_rejoin()
    delays_ms = [rng.choice((20, 300, 1_000))]

    def on_records(entry: RecordsAppended) -> None:
        if delays_ms and any(map(_is_generation, entry.records)):
            world.clock.call_later(delays_ms.pop(), world.add_consumer_member)

    world.history.subscribe(RecordsAppended, on_records)
    return True


def _is_generation(record: object) -> bool:
    """True if a record is a new generation of the group, without its assignment."""
    if not isinstance(record, GroupRecord):
        return False
    return record.group_id == CONSUMER_GROUP and record.awaiting_sync


def consumers_leave_during_a_computation(world: World, rng: Random) -> bool:
    """Let all members with the consumer protocol stop while requests wait for a target."""
    members = world.live_consumer_members
    classic = _pick(world, rng)
    if not members or classic is None:
        return False
    server_assignors_hang(world, rng)
    classic.subscribe(world.draw_topics(rng))
    for member in members:
        world.clock.call_later(rng.choice((100, 400)), member.leave)
    return True


def rogue_classic_heartbeats(world: World, rng: Random) -> bool:
    """Send a Heartbeat or SyncGroup with another generation or id of a classic member."""
    member = _pick(world, rng)
    if member is None:
        return False
    membership = member.core.membership
    return RogueMember(world, rng).send_classic(membership.member_id, membership.generation)


def member_is_upgraded(world: World, rng: Random) -> bool:
    member = _pick(world, rng)
    if member is not None:
        _upgrade(world, rng, member)
    return member is not None


def member_is_downgraded(world: World, rng: Random) -> bool:
    members = world.live_consumer_members
    if members:
        _downgrade(world, rng, rng.choice(members))
    return bool(members)


def group_is_upgraded(world: World, rng: Random) -> bool:
    """Replace all members with the classic protocol, one after the other."""
    members = world.live_classic_members
    step_ms = rng.choice((0, 200, 2_000, 5_000))
    for number, member in enumerate(members):
        _later(world, number * step_ms, _upgrade, rng, member)
    return bool(members)


def group_is_downgraded(world: World, rng: Random) -> bool:
    """Replace all members with the consumer protocol, one after the other."""
    members = world.live_consumer_members
    step_ms = rng.choice((0, 200, 2_000, 5_000))
    for number, member in enumerate(members):
        _later(world, number * step_ms, _downgrade, rng, member)
    return bool(members)


def _later(
    world: World,
    delay_ms: int,
    replace: Callable[[World, Random, Any], None],
    rng: Random,
    member: ClassicMember | HeartbeatMember,
) -> None:
    draw = Random(rng.getrandbits(32))
    world.clock.call_later(delay_ms, lambda: replace(world, draw, member))


def _is_upgrade(record: object) -> bool:
    return isinstance(record, GroupTombstone) and record.group_id == CONSUMER_GROUP


def _is_downgrade(record: object) -> bool:
    return isinstance(record, ConsumerGroupTombstone) and record.group_id == CONSUMER_GROUP


CRASH_POINTS: Final = (
    CrashPoint("dies_before_an_upgrade_is_stored", False, _is_upgrade),
    CrashPoint("dies_after_an_upgrade_is_stored", True, _is_upgrade),
    CrashPoint("dies_before_a_downgrade_is_stored", False, _is_downgrade),
    CrashPoint("dies_after_a_downgrade_is_stored", True, _is_downgrade),
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
    classic_consumer_joins,
    classic_consumer_leaves,
    classic_consumer_restarts,
    classic_consumer_is_started_twice,
    classic_consumer_pauses,
    classic_consumer_polls_late,
    classic_consumer_revokes_slowly,
    classic_consumer_is_cut_off,
    classic_consumer_changes_topics,
    classic_consumer_rejoins,
    member_is_upgraded,
    member_is_downgraded,
    group_is_upgraded,
    group_is_downgraded,
    *map(_arm, CRASH_POINTS),
    leader_assigns_slowly,
    consumers_leave_during_a_computation,
    rogue_classic_heartbeats,
)
