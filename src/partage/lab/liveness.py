"""Liveness checks of a healed world.

- ``liveness``: within `Options.liveness_timeout_ms` every consumer that wants to be in a group is a
  Stable member. Each subscribed partition has one owner, every record was delivered and committed,
  and no further rebalance occurs.
- ``restart``: a broker that is killed and restarts (or is replaced) causes no new generation.
- ``shutdown``: after all members left, no request is unanswered and only the offset expiry timers
  are armed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from partage.coordinator.group import Group
from partage.coordinator.states import GroupState
from partage.coordinator.timers import ExpiryTimer
from partage.lab.brokers.broker import SimulatedBroker
from partage.lab.clients.consumer import ConsumerProcess
from partage.lab.clients.rogue_client import RogueClient
from partage.lab.consumer_liveness import (
    GroupEpochs,
    consumer_group_epochs,
    consumer_group_problem,
)
from partage.lab.history import RuleViolationError
from partage.lab.names import (
    CONSUMER_GROUP,
    LOOP_GROUP,
    MEMBERLESS_GROUP,
    OUTPUT_TOPIC,
    TRANSACTIONAL_GROUP,
)
from partage.lab.options import IN_FLIGHT_MAX_MS, REQUEST_TIMEOUT_MS
from partage.lab.world import World
from partage.member.states import MemberState
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.transactions.states import ENDED

_POLL_INTERVAL_MS: Final = 1_000
_QUIET_MS: Final = 6_000
_UNLIMITED_MEMBERS: Final = 1_000


_STABLE_STATES: Final = (GroupState.EMPTY, GroupState.STABLE)


def check_liveness(world: World) -> None:
    """Heal all faults and check that the world becomes stable and stays stable.

    Raises:
        RuleViolationError: The world does not become stable in time, or does not stay stable.
    """
    world.heal_faults()
    world.clock.run(IN_FLIGHT_MAX_MS)
    if world.was_impersonated:
        world.repeat_consumer_heartbeats()
        world.clock.run(REQUEST_TIMEOUT_MS)
    for producer in world.producers:
        producer.stop()
    for each in world.transactional_producers:
        each.stop()
    _wait_until_stable(world)
    _wait_until_none(
        world, "transaction-liveness", _transaction_problem, world.options.transaction_liveness_ms
    )
    _wait_until_converged(world)
    # A broker that started late may be taking over shards at this moment.
    _wait_until_none(world, "liveness", _loading_problem, world.options.takeover_ms)
    before = _generations(world)
    epochs = consumer_group_epochs(world)
    world.clock.run(_QUIET_MS)
    _check_generations_unchanged(
        world, "liveness", before, "although no member joined, left or failed"
    )
    _check_epochs_unchanged(world, "consumer-liveness", epochs)
    _check_responses(world)
    _check_restart(world, before)
    _check_consumer_failover(world, epochs)
    _reread_everything(world)
    _check_shutdown(world)


def _wait_until_stable(world: World) -> None:
    try:
        _wait_until_none(world, "liveness", _liveness_problem, world.options.liveness_timeout_ms)
    except RuleViolationError:
        # These states last until the next rebalance (see docs/simulator.md):
        # - A static member restarts between the two rebalances of a cooperative hand-over. It gets
        #   its old assignment, so no member joins the second rebalance.
        # - A leader returns over an old JoinGroup version and does not know that it leads.
        # - A static member returns with other topics and gets its old assignment.
        static = [p for p in world.live_processes if p.is_member and p.instance_id is not None]
        if not static or _membership_problem(world) is not None:
            raise
        world.faults["static_group_needs_rebalance"] += 1
        for process in static:
            RogueClient(world, world.rng).remove_static_member(
                process.group_id, process.instance_id or ""
            )
        _wait_until_none(world, "liveness", _liveness_problem, world.options.liveness_timeout_ms)


def _wait_until_converged(world: World) -> None:
    """Wait until the group with the consumer protocol, or with both, has converged.

    While it is a classic group, its static members may need a rebalance; see `_wait_until_stable`.
    """
    limit_ms = world.options.consumer_liveness_ms
    try:
        _wait_until_none(world, "consumer-liveness", consumer_group_problem, limit_ms)
    except RuleViolationError:
        static = [p for p in world.live_classic_members if p.is_member and p.instance_id]
        if not static or world.state_of(CONSUMER_GROUP) is not GroupState.STABLE:
            raise
        world.faults["static_group_needs_rebalance"] += 1
        for process in static:
            RogueClient(world, world.rng).remove_static_member(
                CONSUMER_GROUP, process.instance_id or ""
            )
        _wait_until_none(world, "consumer-liveness", consumer_group_problem, limit_ms)


def _wait_until_none(
    world: World, rule: str, find_problem: Callable[[World], str | None], timeout_ms: int
) -> None:
    for _ in range(0, timeout_ms, _POLL_INTERVAL_MS):
        if find_problem(world) is None:
            return
        world.clock.run(_POLL_INTERVAL_MS)
    problem = find_problem(world)
    if problem is not None:
        raise RuleViolationError(rule, f"{timeout_ms} ms after all faults were healed: {problem}")


def _check_responses(world: World) -> None:
    """Check that each request that is open now gets a response.

    A coordinator that is killed forgets its requests, so this comes before the kills. Members send
    requests all the time, so one or another may be open at every moment.
    """
    before = _open_tickets(world)

    def unanswered_problem(world: World) -> str | None:
        unanswered = before & _open_tickets(world)
        return f"{len(unanswered)} requests have no response" if unanswered else None

    _wait_until_none(world, "liveness", unanswered_problem, 4 * REQUEST_TIMEOUT_MS)


def _check_restart(world: World, before: dict[str, int]) -> None:
    """Kill a coordinator and check that no group gets a new generation."""
    coordinator = world.coordinator(next(iter(before), ""))
    if not before or coordinator is None:
        return
    coordinator.die("killed after all faults were healed")
    world.clock.run(_QUIET_MS + world.options.takeover_ms)
    _check_generations_unchanged(world, "restart", before, "after a broker was killed")
    _wait_until_none(world, "restart", _liveness_problem, world.options.liveness_timeout_ms)


def _check_consumer_failover(world: World, before: GroupEpochs | None) -> None:
    """Kill the coordinator of the group with the consumer protocol: its epochs must survive."""
    coordinator = world.coordinator(CONSUMER_GROUP)
    generation = _generations(world).get(CONSUMER_GROUP)
    if (before is None and generation is None) or coordinator is None:
        return
    coordinator.die("killed after all faults were healed")
    world.clock.run(_QUIET_MS + world.options.takeover_ms)
    _wait_until_none(
        world, "consumer-restart", consumer_group_problem, world.options.consumer_liveness_ms
    )
    _check_epochs_unchanged(world, "consumer-restart", before)
    after = _generations(world).get(CONSUMER_GROUP)
    if after != generation:
        change = f"generation {generation} changed to {after}"
        raise RuleViolationError("consumer-restart", f"{change} after a broker was killed")


def _check_epochs_unchanged(world: World, rule: str, before: GroupEpochs | None) -> None:
    _wait_until_none(world, rule, _loading_problem, world.options.takeover_ms)
    after = consumer_group_epochs(world)
    if after != before:
        raise RuleViolationError(
            rule, f"epochs changed from {before} to {after} although no member joined or left"
        )


def _reread_everything(world: World) -> None:
    """Read all offsets and records once more, for the checkers."""
    is_transactional = bool(world.transactional_producers)
    groups = [MEMBERLESS_GROUP, *([TRANSACTIONAL_GROUP, LOOP_GROUP] if is_transactional else [])]
    if world.options.consumer_members:
        groups.append(CONSUMER_GROUP)
    for group_id in dict.fromkeys([*_group_ids(world), *groups]):
        RogueClient(world, world.rng).fetch_all_offsets(group_id)
    world.clock.run(_POLL_INTERVAL_MS)
    _wait_until_none(world, "restart", _storage_problem, world.options.takeover_ms)
    for broker in _leaders(world):
        storage = broker.storage
        assert storage is not None, "the broker was restarted"
        for key, partition in storage.partitions.items():
            place = TopicPartition(*key)
            if place.topic in world.partition_counts:
                world.append_history(storage.reread_partition(place, partition, world.now_ms))
            elif place.topic == OUTPUT_TOPIC:
                world.append_history(storage.reread_output(place, partition, world.now_ms))


def _leaders(world: World) -> list[SimulatedBroker]:
    """Return the brokers with partitions of topics."""
    count = world.output_leader_count if world.transactional_producers else 1
    return world.brokers[:count]


def _storage_problem(world: World) -> str | None:
    is_down = any(broker.storage is None for broker in _leaders(world))
    return "a broker with partitions of topics is down" if is_down else None


def _check_shutdown(world: World) -> None:
    """Let all members leave: half at once, half by draining (after a hand-over)."""
    for number, process in enumerate(world.live_processes):
        if number % 2:
            process.leave()
        else:
            process.drain()
    for member in world.live_group_members:
        member.leave()
    _wait_until_none(world, "shutdown", _leftover_problem, world.options.liveness_timeout_ms)


def _loading_problem(world: World) -> str | None:
    return None if world.groups() is not None else "the groups are not loaded"


def _check_generations_unchanged(world: World, rule: str, before: dict[str, int], why: str) -> None:
    _wait_until_none(world, rule, _loading_problem, world.options.takeover_ms)
    after = _generations(world)
    if after != before:
        raise RuleViolationError(rule, f"generations changed from {before} to {after} {why}")


def _generations(world: World) -> dict[str, int]:
    groups = world.groups() or {}
    return {name: group.generation for name, group in groups.items() if group.members}


def _transaction_problem(world: World) -> str | None:
    """Return the first transaction or producer that has not ended, or None."""
    if not world.transactional_producers:
        return None
    if (problem := _storage_problem(world)) is not None:
        return problem
    loaded = {
        number: host.driver.shard
        for broker in world.brokers
        if broker.is_up and broker.may_answer
        for number, host in enumerate(broker.transaction_hosts)
        if host.driver.shard is not None
    }
    if len(loaded) < world.options.transaction_shard_count:
        return "the transaction coordinator is not loaded"
    for producer in world.transactional_producers:
        if producer.is_alive and not producer.is_idle:
            return f"{producer.name} is still in a transaction"
        if producer.is_alive and producer.is_in_group:
            return f"{producer.name} has not left its group"
    for shard in loaded.values():
        for transaction in shard.transactions.values():
            if transaction.record.state not in ENDED:
                return f"a transaction is still open: {transaction.record}"
    partitions = [
        each
        for broker in _leaders(world)
        if broker.storage is not None
        for each in broker.storage.partitions.items()
    ]
    for (topic, index), partition in partitions:
        log = partition.log
        if topic == OUTPUT_TOPIC and log.last_stable_offset != log.high_watermark:
            stable = f"{log.last_stable_offset} of {log.high_watermark}"
            return f"the last stable offset of {topic}-{index} is {stable}"
    return None


def _open_tickets(world: World) -> set[Any]:
    """Return the tickets of all requests to group coordinators that have no response yet."""
    hosts = [host for broker in world.brokers for host in broker.hosts]
    return {ticket for host in hosts for ticket in host.open_tickets()}


def _leftover_problem(world: World) -> str | None:
    groups = world.groups()
    if groups is None:
        return "the groups are not loaded"
    members = [member for group in groups.values() for member in group.members]
    if members:
        return f"{members} are still members"
    if unanswered := _open_tickets(world):
        return f"{len(unanswered)} requests have no response"
    hosts = [host for broker in world.brokers for host in broker.hosts]
    transaction_hosts = [host for broker in world.brokers for host in broker.transaction_hosts]
    if waiting := sum(len(host.open_tickets()) for host in transaction_hosts):
        return f"{waiting} requests of transactional producers have no response"
    armed = [key for host in hosts for key in host.driver.timers.armed]
    timers = [key for key in armed if not isinstance(key, ExpiryTimer)]
    if world.live_group_members:
        return f"{[each.name for each in world.live_group_members]} have not left"
    return f"timers are still armed: {timers}" if timers else None


def _liveness_problem(world: World) -> str | None:
    """Return a description of the first problem, or None if the world is stable."""
    if world.now_ms < world.is_growing_until_ms:
        return "a topic may get a partition"
    problem = _membership_problem(world)
    if problem is not None:
        return problem
    for group_id in _group_ids(world):
        problem = _assignment_problem(world, group_id) or _consumption_problem(world, group_id)
        if problem is not None:
            return f"group {group_id}: {problem}"
    return None


def _group_ids(world: World) -> list[str]:
    """Return the groups of `ConsumerProcess`; the group with both protocols has its own rules."""
    known = [group_id for group_id in world.groups() or {} if group_id != CONSUMER_GROUP]
    return list(dict.fromkeys([*known, *(p.group_id for p in world.live_processes)]))


def _membership_problem(world: World) -> str | None:
    """Return the first consumer or group that is not Stable, whatever its assignment, or None."""
    groups = world.groups()
    if groups is None:
        return "the groups are not loaded"
    for process in world.live_processes:
        if process.failure is not None and not _is_final(world, process):
            return f"{process.name} failed with {process.failure}"
        if process.failure is None and process.is_subscribed and not process.is_member:
            return f"{process.name} is not a member, although it did not leave"
    for group_id in _group_ids(world):
        problem = _group_membership_problem(world, group_id, groups.get(group_id))
        if problem is not None:
            return f"group {group_id}: {problem}"
    return None


def _is_final(world: World, process: ConsumerProcess) -> bool:
    """Return True if a member's failure is legitimate and final.

    Another member has its instance id, the group is full, or the protocols do not match.
    """
    match process.failure:
        case ErrorCode.FENCED_INSTANCE_ID.name:
            return process.instance_id is not None
        case ErrorCode.GROUP_MAX_SIZE_REACHED.name:
            return world.options.members_max < _UNLIMITED_MEMBERS
    return process.failure == ErrorCode.INCONSISTENT_GROUP_PROTOCOL.name


def _group_membership_problem(world: World, group_id: str, group: Group | None) -> str | None:
    members = world.members(group_id)
    known = set() if group is None else set(group.members)
    believed = {process.core.membership.member_id for process in members}
    if known != believed:
        return f"the coordinator has {sorted(known)}, the live members are {sorted(believed)}"
    if group is not None and group.state not in _STABLE_STATES:
        return f"the group is {group.state}"
    for process in members:
        state = process.core.membership.state
        if state is not MemberState.STABLE:
            return f"{process.name} is {state}"
        if process.core.deliverable != process.core.owned:
            return f"{process.name} does not deliver from all partitions that it owns"
    return None


def _subscribed_partitions(world: World, group_id: str) -> list[TopicPartition]:
    topics = {topic for process in world.members(group_id) for topic in process.topics}
    counts = world.partition_counts
    return sorted(
        TopicPartition(topic, index) for topic in topics for index in range(counts[topic])
    )


def _assignment_problem(world: World, group_id: str) -> str | None:
    owned = sorted(p for process in world.members(group_id) for p in process.core.owned)
    wanted = _subscribed_partitions(world, group_id)
    return None if owned == wanted else f"{owned} are owned, {wanted} are subscribed"


def _consumption_problem(world: World, group_id: str) -> str | None:
    for process in world.members(group_id):
        if not process.poll_loop.has_committed_all(world.end_offset):
            return f"{process.name} has not read and committed all records"
    seen = world.delivered[group_id]
    for partition in _subscribed_partitions(world, group_id):
        missing = set(range(world.end_offset(partition))) - seen[partition]
        if missing:
            return f"records {sorted(missing)[:5]} of {partition} were not delivered"
    return None
