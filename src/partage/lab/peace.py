"""Liveness checks of a healed world.

- ``peace``: within `Options.liveness_timeout_ms` every consumer that wants to be in a group is a
  Stable member. Each subscribed partition has one owner, every record was delivered and committed,
  and no further rebalance occurs.
- ``restart``: a broker that is killed and restarts (or is replaced) causes no new generation.
- ``leaving``: after all members left, no request is unanswered and only the offset expiry timers
  are armed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from partage.coordinator.group import Group
from partage.coordinator.states import GroupState
from partage.coordinator.timers import ExpiryTimer
from partage.lab.clients.consumer import Process
from partage.lab.clients.strangers import SIMPLE, Stranger
from partage.lab.history import Partition, Violation
from partage.lab.options import LATE_MS
from partage.member.states import MemberState
from partage.model.errors import ErrorCode
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC

if TYPE_CHECKING:
    from partage.lab.world import World

_LOOK_EVERY_MS: Final = 1_000
_QUIET_MS: Final = 6_000
_ROOM_FOR_ALL: Final = 1_000


_AT_REST: Final = (GroupState.EMPTY, GroupState.STABLE)


def live_on(world: World) -> None:
    """Heal all faults and check that the world becomes stable and stays stable.

    Raises:
        RuleViolationError: The world does not become stable in time, or does not stay stable.
    """
    world.calm()
    world.clock.run(LATE_MS)
    for producer in world.producers:
        producer.stop()
    _find_peace(world)
    before = _generations(world)
    world.clock.run(_QUIET_MS)
    _expect_quiet(world, "peace", before, "though nobody came, went or failed")
    _restart(world, before)
    _look_at_all(world)
    _leave(world)


def _find_peace(world: World) -> None:
    try:
        _wait(world, "peace", _unrest, world.options.patience_ms)
    except Violation:
        # These states last until the next rebalance (see docs/simulator.md):
        # - A static member restarts between the two rebalances of a cooperative hand-over. It gets
        #   its old assignment, so no member joins the second rebalance.
        # - A leader returns over an old JoinGroup version and does not know that it leads.
        # - A static member returns with other topics and gets its old assignment.
        static = [p for p in world.alive if p.is_member and p.instance_id is not None]
        if not static or _unsettled(world) is not None:
            raise
        world.faults["a static group has to be nudged"] += 1
        for process in static:
            Stranger(world, world.rng).remove(process.group_id, process.instance_id or "")
        _wait(world, "peace", _unrest, world.options.patience_ms)


def _wait(world: World, rule: str, unrest: object, patience_ms: int) -> None:
    assert callable(unrest)
    for _ in range(0, patience_ms, _LOOK_EVERY_MS):
        if unrest(world) is None:
            return
        world.clock.run(_LOOK_EVERY_MS)
    problem = unrest(world)
    if problem is not None:
        raise Violation(rule, f"{patience_ms} ms after all faults: {problem}")


def _restart(world: World, before: dict[str, int]) -> None:
    """Kill a coordinator and check that no group gets a new generation."""
    coordinator = world.coordinator(next(iter(before), ""))
    if not before or coordinator is None:
        return
    coordinator.die("it is killed, in peace")
    world.clock.run(_QUIET_MS + world.options.takeover_ms)
    _expect_quiet(world, "restart", before, "for a broker that was killed")
    _wait(world, "restart", _unrest, world.options.patience_ms)


def _look_at_all(world: World) -> None:
    """Read all offsets and records once more, for the checkers."""
    for group_id in dict.fromkeys([*_groups(world), SIMPLE]):
        Stranger(world, world.rng).read_all(group_id)
    world.clock.run(_LOOK_EVERY_MS)
    _wait(world, "restart", _topics_away, world.options.takeover_ms)
    storage = world.broker.storage
    assert storage is not None, "it has come back"
    for place, partition in storage.partitions.items():
        if place[0] != OFFSETS_TOPIC:
            world.note(storage.reread(place, partition, world.now_ms))


def _topics_away(world: World) -> str | None:
    return None if world.broker.storage is not None else "the broker with the topics is away"


def _leave(world: World) -> None:
    """Let all members leave: half at once, half by draining (after a hand-over)."""
    for number, process in enumerate(world.alive):
        if number % 2:
            process.leave()
        else:
            process.drain()
    _wait(world, "leaving", _leftovers, world.options.patience_ms)


def _absence(world: World) -> str | None:
    return None if world.groups() is not None else "the groups are not loaded"


def _expect_quiet(world: World, rule: str, before: dict[str, int], why: str) -> None:
    _wait(world, rule, _absence, world.options.takeover_ms)
    after = _generations(world)
    if after != before:
        raise Violation(rule, f"generations went from {before} to {after}, {why}")


def _generations(world: World) -> dict[str, int]:
    groups = world.groups() or {}
    return {name: group.generation for name, group in groups.items() if group.members}


def _leftovers(world: World) -> str | None:
    groups = world.groups()
    if groups is None:
        return "the groups are not loaded"
    members = [member for group in groups.values() for member in group.members]
    if members:
        return f"{members} are still members"
    hosts = [host for broker in world.brokers for host in broker.hosts]
    if unanswered := sum(host.open_tickets() for host in hosts):
        return f"{unanswered} requests are not answered"
    armed = [key for host in hosts for key in host.driver.timers.armed]
    timers = [key for key in armed if not isinstance(key, ExpiryTimer)]
    return f"timers are left: {timers}" if timers else None


def _unrest(world: World) -> str | None:
    """Return a description of the first problem, or None if the world is stable."""
    problem = _unsettled(world)
    if problem is not None:
        return problem
    for group_id in _groups(world):
        problem = _unassigned(world, group_id) or _unread(world, group_id)
        if problem is not None:
            return f"group {group_id}: {problem}"
    return None


def _groups(world: World) -> list[str]:
    return list(dict.fromkeys([*(world.groups() or {}), *(p.group_id for p in world.alive)]))


def _unsettled(world: World) -> str | None:
    """Return the first consumer or group that is not Stable, whatever its assignment, or None."""
    groups = world.groups()
    if groups is None:
        return "the groups are not loaded"
    for process in world.alive:
        if process.failure is not None and not _is_final(world, process):
            return f"{process.name} ended with {process.failure}"
        if process.failure is None and process.wants_in and not process.is_member:
            return f"{process.name} is out, and nobody has asked it to leave"
    for group_id in _groups(world):
        problem = _unsettled_group(world, group_id, groups.get(group_id))
        if problem is not None:
            return f"group {group_id}: {problem}"
    return None


def _is_final(world: World, process: Process) -> bool:
    """True if a member may have failed for good.

    Another member has its instance id, the group is full, or the protocols do not match.
    """
    match process.failure:
        case ErrorCode.FENCED_INSTANCE_ID.name:
            return process.instance_id is not None
        case ErrorCode.GROUP_MAX_SIZE_REACHED.name:
            return world.options.members_max < _ROOM_FOR_ALL
    return process.failure == ErrorCode.INCONSISTENT_GROUP_PROTOCOL.name


def _unsettled_group(world: World, group_id: str, group: Group | None) -> str | None:
    members = world.members(group_id)
    known = set() if group is None else set(group.members)
    believed = {process.core.membership.member_id for process in members}
    if known != believed:
        return f"the coordinator has {sorted(known)}, the members are {sorted(believed)}"
    if group is not None and group.state not in _AT_REST:
        return f"it is {group.state}"
    for process in members:
        state = process.core.membership.state
        if state is not MemberState.STABLE:
            return f"{process.name} is {state}"
        if process.core.deliverable != process.core.owned:
            return f"{process.name} does not hand out all it owns"
    return None


def _wanted(world: World, group_id: str) -> list[Partition]:
    topics = {topic for process in world.members(group_id) for topic in process.topics}
    counts = world.partition_counts
    return sorted((topic, index) for topic in topics for index in range(counts[topic]))


def _unassigned(world: World, group_id: str) -> str | None:
    owned = sorted(p for process in world.members(group_id) for p in process.core.owned)
    wanted = _wanted(world, group_id)
    return None if owned == wanted else f"{owned} are owned, {wanted} are wanted"


def _unread(world: World, group_id: str) -> str | None:
    for process in world.members(group_id):
        if not process.reading.is_through(world.end_of):
            return f"{process.name} has not read and committed all"
    seen = world.delivered[group_id]
    for partition in _wanted(world, group_id):
        missing = set(range(world.end_of(partition))) - seen[partition]
        if missing:
            return f"records {sorted(missing)[:5]} of {partition} were handed to nobody"
    return None
