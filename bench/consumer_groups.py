"""Heartbeats and rebalances with the consumer protocol (KIP-848), beside the classic protocol.

Closed loop: 100 members of 10 groups, with one connection each. Each sends the next heartbeat
when it gets a response, with the classic protocol and with the consumer protocol by turns.

Many members: groups of 100 members, first with a heartbeat every 3 s, then in a closed loop.

Rebalance: one member joins a group of 1,000 with 10 partitions for each. Members send a heartbeat
every second. The time ends when all members are in the last epoch or generation and own all
partitions. Leaders with the classic protocol assign with ``range`` (eager: one rebalance) or
``cooperative-sticky`` (two rebalances).

Assignment: 10,000 members share 100,000 partitions, and one more joins. A monitored broker reports
the longest callbacks on its event loop in that time.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from bench.brokers import (
    KAFKA,
    KFAKE,
    OURS,
    Broker,
    LongCallback,
    kafka,
    kfake,
    monitored,
    ours,
)
from bench.classic_groups import TopicGroup, form_topic_group
from bench.consumer_members import (
    ConsumerProtocolMember,
    create_topic,
    is_balanced,
    join_group,
    settle,
)
from bench.figures import Figure, figures_of_rounds
from bench.groups import callback_figure
from bench.heartbeats import connect_members
from bench.load import Caller, closed_loop, connect, exchange, percentile
from bench.machine import LOAD_CORE, MEMORY
from bench.members import Member, leave_all
from bench.progress import step
from bench.worker_process import WorkerProcess
from partage.assignors import Assignor, CooperativeSticky, Range

TITLE = "Consumer groups"

CLASSIC, CONSUMER = "classic", "consumer"
EAGER, COOPERATIVE = "classic protocol, eager", "classic protocol, cooperative"
_CONNECTIONS, _GROUP_SIZE = 100, 10
_MEMBERS, _CROWD = 15_000, 100
_CROWD_INTERVAL_S = 3.0
#: So long that no heartbeat is sent.
_NEVER_S = 3_600.0
_REBALANCE_INTERVAL_S = 1.0
_PARTITIONS_PER_MEMBER = 10
#: Apache Kafka 4.4 creates no topic with 10,000 partitions: its controller writes at most 10,000
#: records in a batch, and the topic itself is one.
_JOIN_PARTITIONS_PER_MEMBER = 9
_LARGEST = 10_000
#: The most that one request may create, and the members that share them.
_PARTITIONS_PER_TOPIC, _MEMBERS_PER_TOPIC = 10_000, 1_000
_DESCRIPTORS_KEPT = 1_000
#: The assignors of leaders with the classic protocol.
_ASSIGNORS: dict[str, Callable[[], Assignor]] = {EAGER: Range, COOPERATIVE: CooperativeSticky}


def measure(*, is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    """Measure heartbeats, many members, rebalances and the largest group."""
    yield from _heartbeats(is_quick, with_kafka)
    yield from _crowds(is_quick, with_kafka)
    yield from _rebalances(is_quick, with_kafka)
    yield _longest_callback(is_quick)


# Closed loop.


class HeartbeatRate(NamedTuple):
    """Heartbeats per second of one broker with one protocol, and its CPU for each."""

    per_s: float
    cpu_us: float


async def heartbeat_rates(
    brokers: list[Broker], rounds: int, seconds: float, warm_up_s: float
) -> dict[tuple[str, str], list[HeartbeatRate]]:
    """Measure each broker and protocol in turn; return the rounds by name and protocol."""
    targets: dict[tuple[str, str], tuple[Broker, list[Caller], list[bytes]]] = {}
    for broker in brokers:
        if broker.name == OURS:
            old = await _classic_groups(broker, _CONNECTIONS // _GROUP_SIZE, _GROUP_SIZE)
            frames = [member.heartbeat_frame() for member in old]
            targets[broker.name, CLASSIC] = (broker, [member.caller for member in old], frames)
        callers = await connect(broker.address, _CONNECTIONS)
        new = await _consumer_groups(broker, _CONNECTIONS // _GROUP_SIZE, _GROUP_SIZE, callers)
        frames = [member.frame() for member in new]
        targets[broker.name, CONSUMER] = (broker, [member.caller for member in new], frames)
    rates: dict[tuple[str, str], list[HeartbeatRate]] = {key: [] for key in targets}
    for (name, protocol), (_, callers, frames) in targets.items():
        step(f"closed loop: warm-up of {name}, {protocol} protocol")
        await closed_loop(callers, frames, warm_up_s)
    step(f"closed loop: {rounds} rounds of {len(targets)} measurements")
    for _ in range(rounds):
        for key, (broker, callers, frames) in targets.items():
            before = broker.cpu_s()
            load = await closed_loop(callers, frames, seconds)
            cpu_us = (broker.cpu_s() - before) / load.responses * 1e6
            rates[key].append(HeartbeatRate(load.per_s, cpu_us))
    return rates


async def _classic_groups(broker: Broker, groups: int, size: int) -> list[Member]:
    """Return members that send no heartbeats by themselves."""
    members = await connect_members(broker.address, groups, size)
    for member in members:
        member.group.heartbeat_interval_s = _NEVER_S
        member.stop_heartbeats()
    await asyncio.sleep(1)  # Responses to the last heartbeats arrive, and schedule the next ones.
    for member in members:
        member.stop_heartbeats()
    return members


async def _consumer_groups(
    broker: Broker, groups: int, size: int, callers: Sequence[Caller]
) -> list[ConsumerProtocolMember]:
    """Form groups of this size, with one member on each connection; return their members."""
    topic = f"beats-{size}"
    await create_topic(broker.address, topic, size)
    joined = await asyncio.gather(
        *(
            join_group(
                broker.address,
                callers[number * size : (number + 1) * size],
                f"{topic}-{number}",
                [topic],
                size,
            )
            for number in range(groups)
        )
    )
    return [member for members in joined for member in members]


def _heartbeats(is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    # short rounds, so that all brokers meet the same disturbances
    rounds, seconds, warm_up_s = (2, 1.0, 1.0) if is_quick else (9, 1.0, 5.0)
    with ExitStack() as stack:
        running = [stack.enter_context(ours())]
        if with_kafka:
            running += [stack.enter_context(kafka()), stack.enter_context(kfake())]
        load = stack.enter_context(WorkerProcess(LOAD_CORE))
        rates = load.run(heartbeat_rates, running, rounds, seconds, warm_up_s)
    classic = f"{OURS}, classic protocol"
    seen = {OURS: rates[OURS, CONSUMER], classic: rates[OURS, CLASSIC]}
    if with_kafka:
        seen |= {name: rates[name, CONSUMER] for name in (KAFKA, KFAKE)}
    yield from figures_of_rounds(
        f"ConsumerGroupHeartbeats on one core, {_CONNECTIONS} connections in a closed loop",
        "/s",
        {name: [each.per_s for each in of] for name, of in seen.items()},
        ratios_wanted={classic: 1.0, KAFKA: 1.0},
    )
    yield from figures_of_rounds(
        "CPU for each, all threads, with kernel time",
        "µs",
        {name: [each.cpu_us for each in of] for name, of in seen.items()},
        less_is_better=True,
    )


# Many members.


class CrowdRound(NamedTuple):
    """The cost of many members in one round.

    With a heartbeat at each interval: the share of a core, and the 99th percentile of the response
    times. In a closed loop: the heartbeats per second.
    """

    core_share: float
    p99_ms: float
    per_s: float


async def run_crowd(
    broker: Broker, protocols: Sequence[str], size: int, rounds: int, seconds: float
) -> dict[str, list[CrowdRound]]:
    """Let ``size`` members send heartbeats at the interval, and then in a closed loop.

    With two protocols, each connection has a member of each, and the rounds alternate.
    """
    callers: list[Caller] = []
    frames: dict[str, list[bytes]] = {}
    groups = size // _CROWD
    what = f"{size:,} members of {broker.name}"
    for protocol in protocols:
        step(f"{what}: join with the {protocol} protocol")
        if protocol == CLASSIC:
            old = await _classic_groups(broker, groups, _CROWD)
            callers = [member.caller for member in old]
            frames[protocol] = [member.heartbeat_frame() for member in old]
        else:
            callers = callers or await connect(broker.address, size)
            new = await _consumer_groups(broker, groups, _CROWD, callers)
            frames[protocol] = [member.frame() for member in new]
    step(f"{what}: {rounds} rounds of {len(protocols)} measurements")
    seen: dict[str, list[CrowdRound]] = {protocol: [] for protocol in protocols}
    for _ in range(rounds):
        for protocol in protocols:
            share, latencies_s = await _beat(broker, callers, frames[protocol], seconds)
            load = await closed_loop(callers, frames[protocol], seconds)
            p99_ms = percentile(latencies_s, 0.99) * 1e3
            seen[protocol].append(CrowdRound(share, p99_ms, load.per_s))
    return seen


async def _beat(
    broker: Broker, callers: Sequence[Caller], frames: Sequence[bytes], seconds: float
) -> tuple[float, list[float]]:
    """Send heartbeats at the interval; return the broker's share of a core, and the latencies."""
    latencies_s: list[float] = []
    is_measuring = False
    # Each member sends two heartbeats first: our broker answers the third in fewer steps.
    warm_up_s = 2 * _CROWD_INTERVAL_S
    until = time.perf_counter() + warm_up_s + seconds

    async def beat(caller: Caller, frame: bytes, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        while (sent := time.perf_counter()) < until:
            await exchange(caller, frame)
            took = time.perf_counter() - sent
            if is_measuring:
                latencies_s.append(took)
            await asyncio.sleep(_CROWD_INTERVAL_S - took)

    beats = [
        asyncio.create_task(beat(caller, frame, _CROWD_INTERVAL_S * number / len(callers)))
        for number, (caller, frame) in enumerate(zip(callers, frames, strict=True))
    ]
    await asyncio.sleep(warm_up_s)
    is_measuring, cpu = True, broker.cpu_s()
    begin = time.perf_counter()
    await asyncio.sleep(until - begin)
    share = (broker.cpu_s() - cpu) / (time.perf_counter() - begin)
    await asyncio.gather(*beats)
    return share, latencies_s


def _crowds(is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    size = min(1_500 if is_quick else _MEMBERS, _connections_max()) // _CROWD * _CROWD
    rounds, seconds = (2, 3.0) if is_quick else (5, 3.0)
    seen: dict[str, list[CrowdRound]] = {}
    for start in (ours, kafka) if with_kafka else (ours,):
        protocols = (CLASSIC, CONSUMER) if start is ours else (CONSUMER,)
        with start() as broker, WorkerProcess(LOAD_CORE) as load:
            crowd = load.run(run_crowd, broker, protocols, size, rounds, seconds)
        seen[broker.name] = crowd[CONSUMER]
        if start is ours:
            seen[f"{OURS}, classic protocol"] = crowd[CLASSIC]
    what = f"{size:,} members, a ConsumerGroupHeartbeat every {_CROWD_INTERVAL_S:g} s"
    ratios_wanted = dict.fromkeys(list(seen)[1:], 1.0)
    yield from figures_of_rounds(
        f"{size:,} members, ConsumerGroupHeartbeats in a closed loop",
        "/s",
        {name: [each.per_s for each in of] for name, of in seen.items()},
        ratios_wanted=ratios_wanted,
    )
    yield from figures_of_rounds(
        f"{what}: share of a core",
        "%",
        {name: [100 * each.core_share for each in of] for name, of in seen.items()},
        less_is_better=True,
        ratios_wanted=ratios_wanted,
    )
    yield from figures_of_rounds(
        f"{what}: response time, p99",
        "ms",
        {name: [each.p99_ms for each in of] for name, of in seen.items()},
        less_is_better=True,
    )


def _connections_max() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1] - _DESCRIPTORS_KEPT


# One member joins.


async def join_large_group(broker: Broker, size: int) -> dict[str, float]:
    """Return the seconds until a group is stable after one member joined, by protocol."""
    partitions = size * _JOIN_PARTITIONS_PER_MEMBER
    await create_topic(broker.address, "wide", partitions)
    times_s = {
        protocol: await _join_classic_group(broker, protocol, size, partitions)
        for protocol in _ASSIGNORS
    }
    return {**times_s, CONSUMER: await _join_consumer_group(broker, size, partitions)}


async def _join_classic_group(broker: Broker, protocol: str, size: int, partitions: int) -> float:
    what = f"{size:,} members of {broker.name}, {protocol}"
    step(f"{what}: join")
    group = TopicGroup(
        protocol,
        "wide",
        partitions,
        _ASSIGNORS[protocol],
        heartbeat_interval_s=_REBALANCE_INTERVAL_S,
    )
    await form_topic_group(broker.address, group, size)
    await asyncio.sleep(2 * _REBALANCE_INTERVAL_S)
    (caller,) = await connect(broker.address, 1)
    group.members.append(Member(group, caller))
    step(f"{what}: one more joins")
    stable = group.when_formed(len(group.members))
    begin = time.perf_counter()
    group.members[-1].join()
    took_s = await stable - begin
    await leave_all(group)
    return took_s


async def _join_consumer_group(broker: Broker, size: int, partitions: int) -> float:
    what = f"{size:,} members of {broker.name}, consumer protocol"
    step(f"{what}: join")
    callers = await connect(broker.address, size + 1)
    members = await join_group(broker.address, callers[:-1], CONSUMER, ["wide"], partitions)
    await asyncio.sleep(2 * _REBALANCE_INTERVAL_S)
    newcomer = ConsumerProtocolMember(callers[-1], CONSUMER, "newcomer", ["wide"])
    members.append(newcomer)
    is_stable = asyncio.Event()

    async def beat(member: ConsumerProtocolMember, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        while not is_stable.is_set():
            await member.reconcile()
            if newcomer.partition_count and is_balanced(members, partitions):
                is_stable.set()
            await asyncio.sleep(_REBALANCE_INTERVAL_S)

    step(f"{what}: one more joins")
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
    size, rounds = (100, 1) if is_quick else (1_000, 2)
    times_s: dict[str, dict[str, float]] = {}
    for start in (ours, kafka, kfake) if with_kafka else (ours,):
        measured = []
        for _ in range(1 if start is kfake else rounds):  # no target depends on kfake
            with start() as broker, WorkerProcess(LOAD_CORE) as load:
                measured.append(load.run(join_large_group, broker, size))
                name = broker.name
        times_s[name] = {
            protocol: statistics.median(each[protocol] for each in measured)
            for protocol in measured[0]
        }
    mine_s = times_s[OURS][CONSUMER]
    partitions = size * _JOIN_PARTITIONS_PER_MEMBER
    what = (
        f"one member joins a group of {size:,} with {partitions:,} partitions, "
        f"a heartbeat every {_REBALANCE_INTERVAL_S:g} s"
    )
    for name, by_protocol in times_s.items():
        for protocol, peer_s in by_protocol.items():
            if (name, protocol) == (OURS, CONSUMER):
                continue
            yield Figure(
                what=what,
                unit="s",
                ours=mine_s,
                peer_name=name if protocol == CONSUMER else f"{name}, {protocol}",
                peer=peer_s,
                less_is_better=True,
                ratio_wanted=1.0 if (name, protocol) == (KAFKA, CONSUMER) else None,
            )


# The largest group.


async def assign_largest(broker: Broker, size: int) -> tuple[float, float]:
    """Let a group form and one more member join; return begin and end."""
    partitions = size * _PARTITIONS_PER_MEMBER
    topics = [f"largest-{number}" for number in range(partitions // _PARTITIONS_PER_TOPIC)]
    for topic in topics:
        await create_topic(broker.address, topic, _PARTITIONS_PER_TOPIC)
    callers = await connect(broker.address, size + 1)
    step(f"{size:,} members × {partitions:,} partitions: join")
    begin = time.perf_counter()
    members = await join_group(broker.address, callers[:-1], "largest", topics, partitions)
    step(f"{size:,} members × {partitions:,} partitions: one more joins")
    members.append(ConsumerProtocolMember(callers[-1], "largest", "newcomer", topics))
    return begin, await settle(members, partitions)


def _longest_callback(is_quick: bool) -> Figure:
    # A multiple, so that the topics have all partitions.
    topics = (1_000 if is_quick else min(_LARGEST, _connections_max())) // _MEMBERS_PER_TOPIC
    size = topics * _MEMBERS_PER_TOPIC
    callbacks: list[LongCallback] = []
    # In memory: a disk takes minutes to create and delete the files of 100,000 partitions.
    with (
        monitored(callbacks, sync="os", parent=MEMORY) as broker,
        WorkerProcess(LOAD_CORE) as load,
    ):
        begin_s, end_s = load.run(assign_largest, broker, size)
    group = f"{size:,} members × {size * _PARTITIONS_PER_MEMBER:,} partitions"
    return callback_figure(
        f"uniform, {group}: longest callback on the event loop",
        [each for each in callbacks if begin_s <= each.began_s <= end_s],
    )
