"""Faults of transactional producers, their coordinator, and the leaders of their partitions."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from partage.coordinator.records import TransactionalOffsetRecord
from partage.lab.brokers.shell import MARKER_PAUSE
from partage.lab.brokers.transaction_shards import AwaitedAbort
from partage.lab.clients.late_request import send_late_marker, send_late_request
from partage.lab.clients.plain_writer import PlainWriter
from partage.lab.clients.rogue_client import RogueClient
from partage.lab.clients.transactional_producer import TransactionalProducer
from partage.lab.history import CrashPoint, MarkerPause
from partage.lab.names import (
    LOOP_GROUP,
    OUTPUT_PARTITIONS,
    OUTPUT_TOPIC,
    TRANSACTIONAL_GROUP,
    broker_name,
)
from partage.lab.world import World
from partage.model.topic_partition import TopicPartition
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.transactions.outcome import MarkersToWrite
from partage.transactions.records import TransactionRecord
from partage.transactions.states import TransactionState


def _pick(world: World, rng: Random) -> TransactionalProducer | None:
    producers = [each for each in world.transactional_producers if each.is_alive]
    return rng.choice(producers) if producers else None


def _pick_group(world: World, rng: Random) -> str:
    """Return a group with offsets in transactions."""
    if not world.options.transactional_members:
        return TRANSACTIONAL_GROUP
    return rng.choice((TRANSACTIONAL_GROUP, LOOP_GROUP))


def transactional_producer_is_replaced(world: World, rng: Random) -> bool:
    """Start a second process with a transactional id; the first one becomes a zombie."""
    producer = _pick(world, rng)
    if producer is None:
        return False
    if rng.random() < 0.5:
        producer.pause(rng.choice((300, 2_000, 8_000)))
    world.replace_transactional_producer(producer)
    return True


def transactional_producer_pauses(world: World, rng: Random) -> bool:
    """Pause a producer; its transaction may time out."""
    producer = _pick(world, rng)
    if producer is not None:
        timeout_ms = world.options.transaction_timeout_ms
        producer.pause(rng.choice((300, timeout_ms // 2, timeout_ms + 2_500)))
    return producer is not None


def transactional_producer_restarts(world: World, rng: Random) -> bool:
    """Kill a producer, with its connections closed or not; often another process takes its id."""
    producer = _pick(world, rng)
    if producer is None:
        return False
    producer.kill(silently=rng.random() < 0.5)
    if rng.random() < 0.7:
        delay_ms = rng.choice((0, 500, 5_000))
        world.clock.call_later(delay_ms, lambda: world.replace_transactional_producer(producer))
    return True


def transactional_producer_is_cut_off(world: World, rng: Random) -> bool:
    producer = _pick(world, rng)
    if producer is not None:
        way = rng.choice(("up", "down"))
        world.network.cut(producer.name, way, rng.choice((1_000, 4_000, 8_000)))
    return producer is not None


def transactional_request_arrives_late(world: World, rng: Random) -> bool:
    """Deliver a request of a transactional producer again, maybe in its next transaction."""
    return send_late_request(world, rng)


def marker_arrives_late(world: World, rng: Random) -> bool:
    """Deliver a written marker again, maybe in the producer's next transaction."""

    def leader_of(place: TopicPartition) -> int | None:
        if place.topic != OFFSETS_TOPIC:
            return world.leader_of(place)
        owner = world.shard_owner(place.partition)
        return None if owner is None else owner.broker_id

    return send_late_marker(world, rng, leader_of)


def markers_are_held(world: World, rng: Random) -> bool:
    """Delay the markers of one partition: its last stable offset does not advance."""
    partitions = [TopicPartition(OUTPUT_TOPIC, index) for index in range(OUTPUT_PARTITIONS)]
    shard = world.shard_of(_pick_group(world, rng))
    partition = rng.choice([*partitions, TopicPartition(OFFSETS_TOPIC, shard)])
    world.marker_holds[partition] = world.now_ms + rng.choice((300, 1_500, 4_000))
    return True


def transaction_coordinator_fails(world: World, rng: Random) -> bool:
    """Fail the transaction coordinator's shard as a bug would; the broker loads it again."""
    loaded = [
        host
        for broker in world.brokers
        if broker.is_up and not broker.is_paused
        for host in broker.transaction_hosts
        if host.driver.shard is not None
    ]
    if not loaded:
        return False
    rng.choice(loaded).reload()
    return True


def group_coordinator_fails(world: World, rng: Random) -> bool:
    """Fail the shard of a group as a bug would; the broker loads it again."""
    return _reload_group_shard(world, _pick_group(world, rng))


def _reload_group_shard(world: World, group_id: str) -> bool:
    coordinator = world.coordinator(group_id)
    if coordinator is None or coordinator.is_paused:
        return False
    coordinator.host_of(group_id).reload()
    return True


def transaction_log_is_compacted(world: World, rng: Random) -> bool:
    return world.broker.compact()


def leader_of_output_is_lost(world: World, rng: Random) -> bool:
    """Take a partition offline as after a failed write; the broker opens it again."""
    partition = TopicPartition(OUTPUT_TOPIC, rng.randrange(OUTPUT_PARTITIONS))
    broker = world.brokers[world.leader_of(partition) - 1]
    return broker.fail_partition(partition)


def plain_record_is_written(world: World, rng: Random) -> bool:
    """Write a record without a transaction between those of transactions."""
    PlainWriter(world, rng)
    return True


def offset_is_committed_beside_transactions(world: World, rng: Random) -> bool:
    return RogueClient(world, rng).commit_beside_transactions(_pick_group(world, rng))


def offset_is_deleted_beside_transactions(world: World, rng: Random) -> bool:
    return RogueClient(world, rng).delete_beside_transactions(_pick_group(world, rng))


def offsets_of_transactions_are_read(world: World, rng: Random) -> bool:
    RogueClient(world, rng).fetch_all_offsets(_pick_group(world, rng))
    return True


def admissions_are_slow(world: World, rng: Random) -> bool:
    """Delay the results of admissions, each by another time; some clients give up before."""
    world.slow_admissions_until_ms = world.now_ms + rng.choice((1_500, 4_000, 8_000))
    return True


def group_log_is_merged(world: World, rng: Random) -> bool:
    """Merge the ZooKeeper log of a group with offsets in transactions."""
    group_id = _pick_group(world, rng)
    coordinator = world.coordinator(group_id)
    return coordinator is not None and coordinator.merge(group_id)


def transaction_coordinator_pauses_before_a_marker(world: World, rng: Random) -> bool:
    """Pause a coordinator before it sends a marker to another broker, until it was deposed.

    Meanwhile its successor writes the marker, and the producer begins the next transaction. Before
    the pause ends, the group coordinator may load the shard again.
    """
    if world.zookeeper is None or world.marker_pause is not None:
        return False
    for_ms = world.options.zookeeper_timeout_ms * rng.choice((13, 16, 20, 30)) // 10
    group_id = _pick_group(world, rng)
    reloads = rng.random() < 0.5

    def reload() -> None:
        if reloads and not world.is_healed:
            _reload_group_shard(world, group_id)

    world.marker_pause = MarkerPause(for_ms, for_ms - rng.choice((1_000, 2_500)), reload)
    return True


def requests_between_brokers_are_cut_off(world: World, rng: Random) -> bool:
    """Delay the requests of one broker to others: markers and admissions."""
    return _cut_between_brokers(world, rng, "up")


def responses_between_brokers_are_cut_off(world: World, rng: Random) -> bool:
    """Delay the responses to one broker. It repeats its markers, although they were written."""
    return _cut_between_brokers(world, rng, "down")


def _cut_between_brokers(world: World, rng: Random, way: str) -> bool:
    broker = rng.choice(world.brokers)
    world.network.cut(broker_name(broker.broker_id), way, rng.choice((1_000, 4_000, 8_000)))
    return broker.is_up


def _is_state(state: TransactionState) -> Callable[[Any], bool]:
    return lambda record: isinstance(record, TransactionRecord) and record.state is state


def _is_awaited(state: TransactionState) -> Callable[[Any], bool]:
    return lambda step: isinstance(step, AwaitedAbort) and step.state is state


def _is_markers(order: Any) -> bool:
    return isinstance(order, MarkersToWrite)


def _is_pending_offset(record: Any) -> bool:
    return isinstance(record, TransactionalOffsetRecord)


_STEPS: Final[tuple[tuple[str, Callable[[Any], bool]], ...]] = (
    ("the_first_partition_is_stored", _is_state(TransactionState.ONGOING)),
    ("a_commit_is_stored", _is_state(TransactionState.PREPARE_COMMIT)),
    ("an_abort_is_stored", _is_state(TransactionState.PREPARE_ABORT)),
    ("a_completed_commit_is_stored", _is_state(TransactionState.COMPLETE_COMMIT)),
    ("a_completed_abort_is_stored", _is_state(TransactionState.COMPLETE_ABORT)),
    ("a_marker_is_stored", _is_markers),
    ("a_pending_offset_is_stored", _is_pending_offset),
    ("a_producer_epoch_is_stored", _is_state(TransactionState.EMPTY)),
    ("an_awaited_abort_is_stored", _is_awaited(TransactionState.PREPARE_ABORT)),
    ("a_completed_awaited_abort_is_stored", _is_awaited(TransactionState.COMPLETE_ABORT)),
)
CRASH_POINTS: Final = tuple(
    CrashPoint(f"dies_{when}_{step}", is_after, matches)
    for step, matches in _STEPS
    for when, is_after in (("before", False), ("after", True))
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
    transactional_producer_is_replaced,
    transactional_producer_pauses,
    transactional_producer_restarts,
    transactional_producer_is_cut_off,
    transactional_request_arrives_late,
    markers_are_held,
    transaction_coordinator_fails,
    group_coordinator_fails,
    transaction_log_is_compacted,
    leader_of_output_is_lost,
    plain_record_is_written,
    offset_is_committed_beside_transactions,
    offset_is_deleted_beside_transactions,
    offsets_of_transactions_are_read,
    *map(_arm, CRASH_POINTS),
    admissions_are_slow,
    group_log_is_merged,
    transaction_coordinator_pauses_before_a_marker,
)
#: Faults of the markers of any world with transactional producers.
MARKER_FAULTS: Final[tuple[Callable[[World, Random], bool], ...]] = (marker_arrives_late,)
#: Faults of the connections between brokers.
LINK_FAULTS: Final[tuple[Callable[[World, Random], bool], ...]] = (
    requests_between_brokers_are_cut_off,
    responses_between_brokers_are_cut_off,
)
assert transaction_coordinator_pauses_before_a_marker.__name__ == MARKER_PAUSE
