"""All faults by name. Each function injects one fault and returns True if it could.

``members``, ``network`` and ``brokers`` have the faults for any world, ``cluster`` those for
several brokers that share a ZooKeeper, ``transactions`` those for transactional producers,
``consumers`` those for members with the consumer protocol, ``migrations`` those for groups with
members of both protocols. The last ones of ``transactions`` are faults of markers and of
connections between brokers. ``zookeeper`` and ``appends`` have those of ZooKeeper and of logs of
shards. Function names and their order are part of the meaning of seeds: names
are shown to users, and plans draw faults by position.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from partage.lab.brokers.shell import MARKER_PAUSE
from partage.lab.clients.rogue_client import RogueClient
from partage.lab.environment.disk import IO_ERRORS, POWER_FAILURE
from partage.lab.fault_kinds import FaultKinds
from partage.lab.faults import (
    appends,
    brokers,
    cluster,
    consumers,
    members,
    migrations,
    network,
    transactions,
    zookeeper,
)
from partage.lab.history import StallEnded, TopicDeleted
from partage.lab.names import UNREAD_TOPIC
from partage.lab.world import World

Fault = Callable[[World, Random], bool]


def _rogue_client_fault(name: str) -> Fault:
    def send(world: World, rng: Random) -> bool:
        return bool(getattr(RogueClient(world, rng), name)())

    return send


def many_join_at_once(world: World, rng: Random) -> bool:
    for _ in range(min(12, 2 * world.options.members_max)):
        RogueClient(world, rng).join()
    return True


def topic_is_deleted(world: World, rng: Random) -> bool:
    """Delete a topic with offsets from rogue clients, one of them just before; create it again at
    once.
    """

    def delete() -> None:
        world.append_history(TopicDeleted(at_ms=world.now_ms, topic=UNREAD_TOPIC))
        world.broker.delete_topic(UNREAD_TOPIC)

    RogueClient(world, rng).commit(without_identity=True)
    world.clock.call_later(rng.choice((1, 50, 700)), delete)
    return True


def machine_stalls(world: World, rng: Random) -> bool:
    """Pause the whole machine: brokers, members and producers. Messages in flight wait."""
    session_ms = world.options.session_timeout_ms
    since_ms = world.now_ms
    world.clock.stall(rng.choice((300, session_ms // 2, session_ms + 500, 2 * session_ms)))
    world.append_history(StallEnded(at_ms=world.now_ms, began_ms=since_ms))
    return True


_COMMON: Final[dict[str, Fault]] = {
    fault.__name__: fault
    for fault in (
        members.member_joins,
        members.member_crashes,
        members.member_restarts,
        members.member_leaves,
        members.member_pauses,
        members.member_polls_late,
        members.listener_is_slow,
        members.assignor_hangs,
        members.assignor_fails,
        members.member_rejoins,
        members.subscription_changes,
        members.instance_id_is_used_twice,
        members.partitions_are_added,
        network.connection_resets,
        network.response_is_lost,
        network.broker_end_vanishes,
        network.requests_are_cut_off,
        network.responses_are_cut_off,
        network.member_is_cut_off,
        network.network_slows_down,
        network.connections_are_refused,
        brokers.broker_is_killed,
        brokers.power_fails,
        brokers.power_fails_in_a_write,
        brokers.broker_pauses,
        brokers.disk_slows_down,
        brokers.writes_fail,
        brokers.disk_is_full,
        brokers.syncs_fail,
        brokers.reads_fail,
        brokers.bit_flips,
        brokers.checkpoints_are_damaged,
        brokers.log_is_compacted,
        many_join_at_once,
    )
} | {
    f"rogue_client_{action}": _rogue_client_fault(name)
    for action, name in {
        "heartbeats": "heartbeat",
        "commits": "commit",
        "syncs": "sync",
        "removes_a_member": "leave",
        "joins": "join",
        "reads_offsets": "read_offsets",
        "describes": "describe_or_list",
        "deletes_the_group": "delete_group",
        "deletes_offsets": "delete_offsets",
        "repeats_a_request": "repeat",
        "sends_garbage": "send_garbage",
    }.items()
}
_CLUSTER: Final[dict[str, Fault]] = {fault.__name__: fault for fault in cluster.FAULTS}

_TOPICS: Final[dict[str, Fault]] = {"topic_is_deleted": topic_is_deleted}
_MACHINE: Final[dict[str, Fault]] = {"machine_stalls": machine_stalls}

_WALL_CLOCKS: Final[dict[str, Fault]] = {"wall_clock_steps": brokers.wall_clock_steps}

_TRANSACTIONS: Final[dict[str, Fault]] = {fault.__name__: fault for fault in transactions.FAULTS}

_CONSUMERS: Final[dict[str, Fault]] = {fault.__name__: fault for fault in consumers.FAULTS}

_MIGRATIONS: Final[dict[str, Fault]] = {fault.__name__: fault for fault in migrations.FAULTS}

_LINKS: Final[dict[str, Fault]] = {fault.__name__: fault for fault in transactions.LINK_FAULTS}

_COMPACTIONS: Final[dict[str, Fault]] = {"logs_are_compacted": brokers.logs_are_compacted}

_MARKERS: Final[dict[str, Fault]] = {fault.__name__: fault for fault in transactions.MARKER_FAULTS}

_ZOOKEEPER: Final[dict[str, Fault]] = {fault.__name__: fault for fault in zookeeper.FAULTS}

_APPENDS: Final[dict[str, Fault]] = {fault.__name__: fault for fault in appends.FAULTS}

FAULTS: Final = (
    _COMMON
    | _CLUSTER
    | _TOPICS
    | _MACHINE
    | _WALL_CLOCKS
    | _TRANSACTIONS
    | _CONSUMERS
    | _MIGRATIONS
    | _LINKS
    | _MARKERS
    | _COMPACTIONS
    | _ZOOKEEPER
    | _APPENDS
)
#: These faults take effect later, at the next matching read or write, or never.
DEFERRED: Final = {
    POWER_FAILURE,
    *IO_ERRORS.values(),
    *(point.kind for point in cluster.CRASH_POINTS),
    *(point.kind for point in transactions.CRASH_POINTS),
    MARKER_PAUSE,
    *(point.kind for point in migrations.CRASH_POINTS),
}
KINDS: Final = FaultKinds(
    common=tuple(_COMMON),
    cluster=tuple(_CLUSTER),
    topics=tuple(_TOPICS),
    machine=tuple(_MACHINE),
    wall_clocks=tuple(_WALL_CLOCKS),
    transactions=tuple(_TRANSACTIONS),
    consumers=tuple(_CONSUMERS),
    migrations=tuple(_MIGRATIONS),
    links=tuple(_LINKS),
    markers=tuple(_MARKERS),
    compactions=tuple(_COMPACTIONS),
    zookeeper=tuple(_ZOOKEEPER),
    appends=tuple(_APPENDS),
)
