"""Faults of the group with the consumer protocol: members, topics, assignors, rogue requests."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from partage.lab import history
from partage.lab.clients.group_member import HeartbeatMember, SimSubscription
from partage.lab.clients.rogue_member import RogueMember
from partage.lab.consumer_topics import TOPIC_NAMES
from partage.lab.names import CONSUMER_GROUP
from partage.lab.options import IN_FLIGHT_MAX_MS
from partage.lab.world import World

_MEMBERS_MAX: Final = 6
_PARTITIONS_MAX: Final = 6


def _pick(world: World, rng: Random) -> HeartbeatMember | None:
    members = world.live_consumer_members
    return rng.choice(members) if members else None


def _other_selection(world: World, rng: Random) -> SimSubscription:
    """Return another subscription, often one without a regular expression."""
    if rng.random() < 0.5:
        return SimSubscription(tuple(sorted(world.draw_topics(rng))))
    return world.draw_selection(rng)


def consumer_joins(world: World, rng: Random) -> bool:
    if len(world.live_consumer_members) >= _MEMBERS_MAX:
        return False
    world.add_consumer_member()
    return True


def consumer_crashes(world: World, rng: Random) -> bool:
    member = _pick(world, rng)
    if member is not None:
        member.crash(silently=rng.random() < 0.5)
    return member is not None


def consumer_restarts(world: World, rng: Random) -> bool:
    """Restart a process; its member id is new. A static member may leave for a while first.

    The new process may have another subscription.
    """
    member = _pick(world, rng)
    if member is None:
        return False
    if member.instance_id is not None and rng.random() < 0.7:
        member.leave(is_final=False)
    elif rng.random() < 0.5:
        member.leave()
    else:
        member.crash(silently=rng.random() < 0.5)
    selection = member.selection if rng.random() < 0.6 else _other_selection(world, rng)
    world.clock.call_later(
        rng.choice((100, 1_000, 4_000)),
        lambda: world.add_consumer_member(member.instance_id, selection),
    )
    return True


def consumer_leaves(world: World, rng: Random) -> bool:
    member = _pick(world, rng)
    if member is not None:
        leave = rng.choice((member.leave, member.drain))
        leave()
    return member is not None


def consumer_unsubscribes(world: World, rng: Random) -> bool:
    """Leave the group and subscribe again, often before the leave is complete."""
    member = _pick(world, rng)
    if member is not None:
        member.unsubscribe(is_final=rng.random() < 0.5)
        selection = world.draw_selection(rng)
        member.call_later(rng.choice((0, 100, 2_000)), lambda: member.subscribe(selection))
    return member is not None


def consumer_polls_late(world: World, rng: Random) -> bool:
    """Let the user process records for about as long as ``max_poll_interval_ms``, or longer."""
    member = _pick(world, rng)
    if member is not None:
        late_ms = world.options.consumer_rebalance_timeout_ms + rng.choice((-1_000, 500, 4_000))
        member.no_poll_until_ms = world.now_ms + late_ms
    return member is not None


def consumer_pauses(world: World, rng: Random) -> bool:
    member = _pick(world, rng)
    if member is not None:
        session_ms = world.options.consumer_session_timeout_ms
        member.pause(rng.choice((500, session_ms // 2, session_ms + 1_000, 3 * session_ms)))
    return member is not None


def consumer_is_cut_off(world: World, rng: Random) -> bool:
    member = _pick(world, rng)
    if member is not None:
        for_ms = min(rng.choice((1_000, 4_000, 12_000)), IN_FLIGHT_MAX_MS - 1)
        for way in rng.choice((("up",), ("down",), ("up", "down"))):
            world.network.cut(member.name, way, for_ms)
    return member is not None


def consumer_revokes_slowly(world: World, rng: Random) -> bool:
    member = _pick(world, rng)
    if member is not None:
        member.slow_until_ms = world.now_ms + 15_000
    return member is not None


def consumer_subscribes_to_others(world: World, rng: Random) -> bool:
    member = _pick(world, rng)
    if member is not None:
        member.subscribe(world.draw_selection(rng))
    return member is not None


def consumer_changes_its_mind(world: World, rng: Random) -> bool:
    """Change the subscription twice; the connection is lost between, maybe before a response."""
    member = _pick(world, rng)
    if member is None:
        return False
    member.subscribe(world.draw_selection(rng))
    selection = world.draw_selection(rng)

    def change() -> None:
        if not world.is_healed:
            member.reconnect()
            member.subscribe(selection)

    member.call_later(rng.choice((0, 2, 20, 200)), change)
    return True


def consumer_reconnects_during_a_callback(world: World, rng: Random) -> bool:
    """Lose the connection when a callback becomes due; the next response is late."""
    member = _pick(world, rng)
    if member is not None:
        member.reconnects_at_callback_ms = rng.choice((400, 1_500, 4_000))
    return member is not None


def consumer_reconnects_while_it_waits(world: World, rng: Random) -> bool:
    """Lose the connection while the coordinator delays a response. It delays some for a target."""
    member = _pick(world, rng)
    if member is None:
        return False
    member.reconnects_when_waiting = True
    if rng.random() < 0.5:
        server_assignors_hang(world, rng)
    return True


def consumer_prefers_another_assignor(world: World, rng: Random) -> bool:
    """Change the assignor of a member as another client can; ours would have to restart."""
    return RogueMember(world, rng).prefer_assignor()


def consumer_instance_is_used_twice(world: World, rng: Random) -> bool:
    member = _pick(world, rng)
    if member is None or member.instance_id is None:
        return False
    world.add_consumer_member(member.instance_id, member.selection)
    return True


def consumer_topic_grows(world: World, rng: Random) -> bool:
    name = rng.choice(TOPIC_NAMES)
    image = world.consumer_topics.images.get(name)
    if image is None or image.partition_count >= _PARTITIONS_MAX:
        return False
    return world.consumer_topics.grow(name)


def consumer_topic_is_created(world: World, rng: Random) -> bool:
    return world.consumer_topics.create(rng.choice(TOPIC_NAMES), rng.choice((1, 2, 4)))


def consumer_topic_is_deleted(world: World, rng: Random) -> bool:
    """Delete a topic; often it is created again, with another id."""
    name = rng.choice(TOPIC_NAMES)
    if not world.consumer_topics.delete(name):
        return False
    world.append_history(history.TopicDeleted(at_ms=world.now_ms, topic=name))
    for broker in world.brokers:
        broker.delete_topic(name)

    def create() -> None:
        world.consumer_topics.create(name, 2)

    if rng.random() < 0.7:
        world.clock.call_later(rng.choice((1, 500, 6_000)), create)
    return True


def server_assignors_fail(world: World, rng: Random) -> bool:
    world.failing_until_ms["assignors"] = world.now_ms + rng.choice((500, 3_000))
    return True


def server_assignors_hang(world: World, rng: Random) -> bool:
    world.hanging_until_ms["assignors"] = world.now_ms + rng.choice((500, 3_000))
    return True


def regexes_fail(world: World, rng: Random) -> bool:
    world.failing_until_ms["regexes"] = world.now_ms + rng.choice((500, 3_000))
    return True


def regexes_hang(world: World, rng: Random) -> bool:
    world.hanging_until_ms["regexes"] = world.now_ms + rng.choice((500, 3_000))
    return True


def consumer_coordinator_fails(world: World, rng: Random) -> bool:
    """Fail the shard of the group as a bug would; its broker loads it again."""
    broker = world.coordinator(CONSUMER_GROUP)
    if broker is None or broker.is_paused or world.zookeeper is not None:
        return False
    broker.host_of(CONSUMER_GROUP).reload()
    return True


def _rogue(name: str, action: str) -> Callable[[World, Random], bool]:
    def send(world: World, rng: Random) -> bool:
        return bool(getattr(RogueMember(world, rng), action)())

    send.__name__ = f"rogue_consumer_{name}"
    return send


FAULTS: Final[tuple[Callable[[World, Random], bool], ...]] = (
    consumer_joins,
    consumer_crashes,
    consumer_restarts,
    consumer_leaves,
    consumer_unsubscribes,
    consumer_pauses,
    consumer_polls_late,
    consumer_is_cut_off,
    consumer_revokes_slowly,
    consumer_subscribes_to_others,
    consumer_prefers_another_assignor,
    consumer_instance_is_used_twice,
    consumer_topic_grows,
    consumer_topic_is_created,
    consumer_topic_is_deleted,
    server_assignors_fail,
    server_assignors_hang,
    regexes_fail,
    regexes_hang,
    consumer_coordinator_fails,
    _rogue("repeats_a_heartbeat", "repeat"),
    _rogue("heartbeats", "heartbeat"),
    _rogue("commits", "commit"),
    _rogue("removes_a_member", "remove"),
    _rogue("describes", "describe"),
    _rogue("deletes_the_group", "delete_group"),
    _rogue("reads_offsets", "fetch_offsets"),
    consumer_changes_its_mind,
    consumer_reconnects_during_a_callback,
    consumer_reconnects_while_it_waits,
)
