"""Heartbeats and rebalances with the consumer protocol (KIP-848), beside the classic protocol.

Closed loop: 100 members of 10 groups, with one connection each. Each sends the next heartbeat
when it gets a response, with the classic protocol and with the consumer protocol by turns.

Many members: groups of 100 members, with a heartbeat every 3 s.

Rebalance: one member joins a group of 1,000 with 10 partitions for each. Members send a heartbeat
every second. The time ends when all members are in the last epoch and own all partitions; with the
classic protocol, when all have an assignment in the last generation (eager: one rebalance).
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

from bench.brokers import KAFKA, KFAKE, OURS, Broker, kafka, kfake, ours
from bench.consumer_members import ConsumerProtocolMember, create_topic, is_balanced, join_group
from bench.figures import Figure
from bench.heartbeats import connect_members
from bench.load import Caller, closed_loop, connect, exchange, percentile
from bench.machine import LOAD_CORE
from bench.members import Member, connect_group, form
from bench.worker_process import WorkerProcess

TITLE = "Consumer groups"

CLASSIC, CONSUMER = "classic", "consumer"
_CONNECTIONS, _GROUP_SIZE = 100, 10
_MEMBERS, _CROWD = 15_000, 100
_CROWD_INTERVAL_S = 3.0
_REBALANCE_INTERVAL_S = 1.0
_PARTITIONS_PER_MEMBER = 10
_DESCRIPTORS_KEPT = 1_000


def measure(*, is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    """Measure heartbeats, many members and rebalances."""
    yield from _heartbeats(is_quick, with_kafka)
    yield from _crowds(is_quick, with_kafka)
    yield from _rebalances(is_quick, with_kafka)


# Closed loop.


class HeartbeatRate(NamedTuple):
    """Heartbeats per second of one broker with one protocol, and its CPU for each."""

    per_s: float
    cpu_us: float


async def heartbeat_rates(
    brokers: list[Broker], rounds: int, seconds: float, warm_up_s: float
) -> dict[tuple[str, str], HeartbeatRate]:
    """Measure each broker and protocol in turn; return the medians by name and protocol."""
    targets: dict[tuple[str, str], tuple[Broker, list[Caller], list[bytes]]] = {}
    for broker in brokers:
        if broker.name == OURS:
            old = await connect_members(broker.address, _CONNECTIONS // _GROUP_SIZE, _GROUP_SIZE)
            for member in old:
                member.stop_heartbeats()
            frames = [member.heartbeat_frame() for member in old]
            targets[broker.name, CLASSIC] = (broker, [member.caller for member in old], frames)
        new = await _consumer_groups(broker, _CONNECTIONS // _GROUP_SIZE, _GROUP_SIZE)
        frames = [member.frame() for member in new]
        targets[broker.name, CONSUMER] = (broker, [member.caller for member in new], frames)
    rates: dict[tuple[str, str], list[HeartbeatRate]] = {key: [] for key in targets}
    for _, callers, frames in targets.values():
        await closed_loop(callers, frames, warm_up_s)
    for _ in range(rounds):
        for key, (broker, callers, frames) in targets.items():
            before = broker.cpu_s()
            load = await closed_loop(callers, frames, seconds)
            cpu_us = (broker.cpu_s() - before) / load.responses * 1e6
            rates[key].append(HeartbeatRate(load.per_s, cpu_us))
    return {
        key: HeartbeatRate(*(statistics.median(column) for column in zip(*measured, strict=True)))
        for key, measured in rates.items()
    }


async def _consumer_groups(broker: Broker, groups: int, size: int) -> list[ConsumerProtocolMember]:
    topic = f"beats-{size}"
    await create_topic(broker.address, topic, size)
    callers = await connect(broker.address, groups * size)
    joined = await asyncio.gather(
        *(
            join_group(
                broker.address,
                callers[number * size : (number + 1) * size],
                f"{topic}-{number}",
                topic,
                size,
            )
            for number in range(groups)
        )
    )
    return [member for members in joined for member in members]


def _heartbeats(is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    # short rounds, so that all brokers meet the same disturbances
    rounds, seconds, warm_up_s = (2, 1.0, 1.0) if is_quick else (15, 1.0, 10.0)
    with ExitStack() as stack:
        running = [stack.enter_context(ours())]
        if with_kafka:
            running += [stack.enter_context(kafka()), stack.enter_context(kfake())]
        load = stack.enter_context(WorkerProcess(LOAD_CORE))
        rates = load.run(heartbeat_rates, running, rounds, seconds, warm_up_s)
    mine = rates[OURS, CONSUMER]
    what = f"ConsumerGroupHeartbeats on one core, {_CONNECTIONS} connections in a closed loop"
    peers = [(f"{OURS}, classic protocol", (OURS, CLASSIC))]
    if with_kafka:
        peers += [(name, (name, CONSUMER)) for name in (KAFKA, KFAKE)]
    for peer_name, key in peers:
        yield Figure(
            what=what,
            unit="/s",
            ours=mine.per_s,
            peer_name=peer_name,
            peer=rates[key].per_s,
            ratio_wanted=None if peer_name == KFAKE else 1.0,
        )
    for peer_name, key in peers:
        yield Figure(
            what="CPU for each, all threads, with kernel time",
            unit="µs",
            ours=mine.cpu_us,
            peer_name=peer_name,
            peer=rates[key].cpu_us,
            less_is_better=True,
        )


# Many members.


class Crowd(NamedTuple):
    """The cost of many members, and the 99th percentile of their response times."""

    members: int
    core_share: float
    p99_ms: float


async def run_crowd(broker: Broker, size: int, seconds: float) -> Crowd:
    """Let ``size`` members with the consumer protocol send heartbeats for some seconds."""
    members = await _consumer_groups(broker, size // _CROWD, _CROWD)
    latencies_s: list[float] = []
    frames = {member: member.frame() for member in members}
    is_measuring = False
    until = time.perf_counter() + _CROWD_INTERVAL_S + seconds

    async def beat(member: ConsumerProtocolMember, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        while (sent := time.perf_counter()) < until:
            await exchange(member.caller, frames[member])
            took = time.perf_counter() - sent
            if is_measuring:
                latencies_s.append(took)
            await asyncio.sleep(_CROWD_INTERVAL_S - took)

    beats = [
        asyncio.create_task(beat(member, _CROWD_INTERVAL_S * number / len(members)))
        for number, member in enumerate(members)
    ]
    await asyncio.sleep(_CROWD_INTERVAL_S)
    is_measuring, cpu = True, broker.cpu_s()
    begin = time.perf_counter()
    await asyncio.sleep(until - begin)
    share = (broker.cpu_s() - cpu) / (time.perf_counter() - begin)
    await asyncio.gather(*beats)
    return Crowd(len(members), share, percentile(latencies_s, 0.99) * 1e3)


def _crowds(is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1] - _DESCRIPTORS_KEPT
    size = min(1_500 if is_quick else _MEMBERS, limit) // _CROWD * _CROWD
    crowds = {}
    for start in (ours, kafka) if with_kafka else (ours,):
        with start() as broker, WorkerProcess(LOAD_CORE) as load:
            crowds[broker.name] = load.run(run_crowd, broker, size, 6.0 if is_quick else 15.0)
    mine, its = crowds[OURS], crowds.get(KAFKA)
    what = f"{mine.members:,} members, a ConsumerGroupHeartbeat every {_CROWD_INTERVAL_S:g} s"
    peer_name = KAFKA if its else ""
    yield Figure(
        what=f"{what}: share of a core",
        unit="%",
        ours=100 * mine.core_share,
        peer_name=peer_name,
        peer=100 * its.core_share if its else None,
        less_is_better=True,
    )
    yield Figure(
        what=f"{what}: response time, p99",
        unit="ms",
        ours=mine.p99_ms,
        peer_name=peer_name,
        peer=its.p99_ms if its else None,
        less_is_better=True,
    )


# One member joins.


async def join_large_group(broker: Broker, size: int) -> dict[str, float]:
    """Return the seconds until a group is stable after one member joined, by protocol."""
    group = await connect_group(
        broker.address, "large", size, heartbeat_interval_s=_REBALANCE_INTERVAL_S
    )
    await form(group)
    await asyncio.sleep(2 * _REBALANCE_INTERVAL_S)
    (caller,) = await connect(broker.address, 1)
    group.members.append(Member(group, caller))
    stable = group.when_formed(len(group.members))
    begin = time.perf_counter()
    group.members[-1].join()
    classic_s = await stable - begin
    for member in group.members:
        member.crash()
    return {CLASSIC: classic_s, CONSUMER: await _join_consumer_group(broker, size)}


async def _join_consumer_group(broker: Broker, size: int) -> float:
    partitions = size * _PARTITIONS_PER_MEMBER
    await create_topic(broker.address, "wide", partitions)
    callers = await connect(broker.address, size + 1)
    members = await join_group(broker.address, callers[:-1], "wide", "wide", partitions)
    await asyncio.sleep(2 * _REBALANCE_INTERVAL_S)
    newcomer = ConsumerProtocolMember(callers[-1], "wide", "newcomer", "wide")
    members.append(newcomer)
    is_stable = asyncio.Event()

    async def beat(member: ConsumerProtocolMember, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        while not is_stable.is_set():
            await member.reconcile()
            if newcomer.partition_count and is_balanced(members, partitions):
                is_stable.set()
            await asyncio.sleep(_REBALANCE_INTERVAL_S)

    begin = time.perf_counter()
    beats = [
        asyncio.create_task(beat(member, _REBALANCE_INTERVAL_S * number / size))
        for number, member in enumerate(members[:-1])
    ]
    beats.append(asyncio.create_task(beat(newcomer, 0)))
    await is_stable.wait()
    took_s = time.perf_counter() - begin
    await asyncio.gather(*beats)
    return took_s


def _rebalances(is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    size, rounds = (100, 1) if is_quick else (1_000, 3)
    times: dict[str, dict[str, float]] = {}
    for start in (ours, kafka) if with_kafka else (ours,):
        measured = []
        for _ in range(rounds):
            with start() as broker, WorkerProcess(LOAD_CORE) as load:
                measured.append(load.run(join_large_group, broker, size))
                name = broker.name
        times[name] = {
            protocol: statistics.median(each[protocol] for each in measured)
            for protocol in (CLASSIC, CONSUMER)
        }
    what = f"one member joins a group of {size:,}, a heartbeat every {_REBALANCE_INTERVAL_S:g} s"
    mine = times[OURS]
    peers = [(f"{OURS}, classic protocol, eager", mine[CLASSIC])]
    if with_kafka:
        peers.append((KAFKA, times[KAFKA][CONSUMER]))
        peers.append((f"{KAFKA}, classic protocol, eager", times[KAFKA][CLASSIC]))
    for peer_name, peer_s in peers:
        yield Figure(
            what=what,
            unit="s",
            ours=mine[CONSUMER],
            peer_name=peer_name,
            peer=peer_s,
            less_is_better=True,
            ratio_wanted=1.0 if peer_name == KAFKA else None,
        )
