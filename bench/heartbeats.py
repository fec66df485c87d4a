"""Heartbeats per second on one core, and the cost of many members.

Closed loop: 100 connections of members of 10 groups. Each connection sends the next request when it
gets a response. All brokers run at the same time and are measured by turns, so that all run under
the same conditions. The median round counts.

Many members: groups of 100 members, one connection each, with a heartbeat every 3 s.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

from bench.brokers import (
    BARE,
    KAFKA,
    KFAKE,
    OURS,
    Broker,
    bare_handler,
    kafka,
    kfake,
    ours,
    starts,
)
from bench.figures import Figure, figures_of_rounds
from bench.load import Address, Caller, closed_loop, connect, percentile
from bench.machine import LOAD_CORE
from bench.members import Member, connect_group, form
from bench.worker_process import WorkerProcess

TITLE = "Heartbeats"

_CONNECTIONS, _GROUPS = 100, 10
_MEMBERS = 15_000
_HEARTBEAT_INTERVAL_S = 3.0
_GROUP_SIZE = 100
_SESSION_MS = 10 * 60_000
_DESCRIPTORS_KEPT = 1_000


def measure(*, is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    """Measure both."""
    yield from _closed_loop(is_quick, with_kafka)
    yield from _member_loads(is_quick, with_kafka)


# Closed loop.


class Round(NamedTuple):
    """The results of one broker in one round."""

    per_s: float
    cpu_us: float  # of the broker, per request
    p99_ms: float
    load_share: float


async def closed_loops(
    brokers: list[Broker], warm_up_s: dict[str, float], rounds: int, seconds: float
) -> dict[str, list[Round]]:
    """Measure each broker in turn; return its rounds by broker name."""
    targets: dict[str, tuple[Broker, list[Caller], list[bytes]]] = {}
    for broker in brokers:
        if broker.name == BARE:
            callers = await connect(broker.address, _CONNECTIONS)
            frames = next(iter(targets.values()))[2]  # it accepts the heartbeats of any member
        else:
            callers, frames = await heartbeat_clients(broker, "beating")
        targets[broker.name] = (broker, callers, frames)
    for name, (_, callers, frames) in targets.items():
        await closed_loop(callers, frames, warm_up_s[name])
    seen: dict[str, list[Round]] = {name: [] for name in targets}
    for _ in range(rounds):
        for name, (broker, callers, frames) in targets.items():
            before = broker.cpu_s()
            load = await closed_loop(callers, frames, seconds)
            cpu_us = (broker.cpu_s() - before) / load.responses * 1e6
            p99_ms = percentile(load.latencies_s, 0.99) * 1e3
            seen[name].append(Round(load.per_s, cpu_us, p99_ms, load.load_share))
    return seen


async def heartbeat_clients(broker: Broker, prefix: str) -> tuple[list[Caller], list[bytes]]:
    """Form 10 groups; return the connections of their 100 members, and a heartbeat for each."""
    size = _CONNECTIONS // _GROUPS
    members = await connect_members(broker.address, _GROUPS, size, prefix)
    for member in members:
        member.stop_heartbeats()
    return [member.caller for member in members], [member.heartbeat_frame() for member in members]


async def connect_members(
    address: Address, groups: int, size: int, prefix: str = "beating"
) -> list[Member]:
    """Form groups of this size; return the members of all groups."""
    members = []
    for number in range(groups):
        group = await connect_group(
            address,
            f"{prefix}-{number}",
            size,
            heartbeat_interval_s=_HEARTBEAT_INTERVAL_S,
            session_ms=_SESSION_MS,
        )
        group.heartbeat_interval_s = 0.05  # until it is formed
        await form(group)
        group.heartbeat_interval_s = _HEARTBEAT_INTERVAL_S
        members += group.members
    return members


def _closed_loop(is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    rounds, seconds = (2, 1.0) if is_quick else (5, 4.0)
    warm_up = {OURS: 1.0, BARE: 1.0, KAFKA: 3.0 if is_quick else 20.0, KFAKE: 1.0}
    with ExitStack() as stack:
        running = [stack.enter_context(ours()), stack.enter_context(bare_handler())]
        if with_kafka:
            running += [stack.enter_context(kafka()), stack.enter_context(kfake())]
        load = stack.enter_context(WorkerProcess(LOAD_CORE))
        seen = load.run(closed_loops, running, warm_up, rounds, seconds)
    what = f"Heartbeats on one core, {_CONNECTIONS} connections in a closed loop"
    shares = (
        f"{statistics.median(one.load_share for one in of):.0%} of its core on {name}"
        for name, of in seen.items()
    )
    yield from figures_of_rounds(
        what,
        "/s",
        {name: [one.per_s for one in of] for name, of in seen.items()},
        ratios_wanted={KAFKA: 1.0, KFAKE: 1.0},
        note=f"Kafka was warmed up by {warm_up[KAFKA]:g} s of this load; the generator used "
        + ", ".join(shares),
    )
    yield from figures_of_rounds(
        "CPU for each Heartbeat, all threads, with kernel time",
        "µs",
        {name: [one.cpu_us for one in of] for name, of in seen.items()},
        less_is_better=True,
    )


# Many members.


class LoadRound(NamedTuple):
    """The cost of many members in some seconds, and their response times."""

    core_share: float
    p99_ms: float
    worst_ms: float
    heartbeats_per_s: float


class MemberLoad(NamedTuple):
    """The rounds of one broker with many members, and its memory."""

    members: int
    bytes_per_member: float
    rounds: list[LoadRound]


async def run_member_load(broker: Broker, size: int, rounds: int, seconds: float) -> MemberLoad:
    """Let ``size`` members send heartbeats, in rounds of some seconds."""
    # The broker imports and opens modules for the first group; do not count that memory.
    await connect_members(broker.address, 1, _GROUP_SIZE)
    before = broker.memory_bytes()
    members: list[Member] = []
    for number in range(size // _GROUP_SIZE):
        group = await connect_group(
            broker.address,
            f"crowd-{number}",
            _GROUP_SIZE,
            heartbeat_interval_s=0.1,
            session_ms=_SESSION_MS,
        )
        await form(group)
        group.heartbeat_interval_s = _HEARTBEAT_INTERVAL_S
        members += group.members
        for member in group.members:
            member.schedule_heartbeat(_HEARTBEAT_INTERVAL_S)
    for number, member in enumerate(members):
        member.schedule_heartbeat(_HEARTBEAT_INTERVAL_S * number / len(members))
    await asyncio.sleep(2 * _HEARTBEAT_INTERVAL_S)
    memory = broker.memory_bytes() - before
    seen = []
    for _ in range(rounds):
        latencies_s: list[float] = []
        for member in members:
            member.heartbeat_latencies_s = latencies_s
        cpu = broker.cpu_s()
        await asyncio.sleep(seconds)
        seen.append(
            LoadRound(
                core_share=(broker.cpu_s() - cpu) / seconds,
                p99_ms=percentile(latencies_s, 0.99) * 1e3,
                worst_ms=max(latencies_s) * 1e3,
                heartbeats_per_s=len(latencies_s) / seconds,
            )
        )
    return MemberLoad(len(members), memory / len(members), seen)


def _member_loads(is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1] - _DESCRIPTORS_KEPT
    size = min(1_500 if is_quick else _MEMBERS, limit) // _GROUP_SIZE * _GROUP_SIZE
    rounds, seconds = (2, 3.0) if is_quick else (5, 6.0)
    seen: dict[str, MemberLoad] = {}
    for started in starts(with_kafka):
        with started as broker, WorkerProcess(LOAD_CORE) as load:
            seen[broker.name] = load.run(run_member_load, broker, size, rounds, seconds)
    mine = seen[OURS]
    what = f"{mine.members:,} members with a heartbeat every {_HEARTBEAT_INTERVAL_S:g} s"
    per_s = statistics.median(each.heartbeats_per_s for each in mine.rounds)
    yield from figures_of_rounds(
        f"{what}: share of a core",
        "%",
        {name: [100 * each.core_share for each in of.rounds] for name, of in seen.items()},
        less_is_better=True,
        wanted=50,
        note=f"{per_s:,.0f} Heartbeats a second; median of {rounds} rounds of {seconds:g} s",
    )
    worst_ms = max(each.worst_ms for each in mine.rounds)
    yield from figures_of_rounds(
        f"{what}: response time, p99",
        "ms",
        {name: [each.p99_ms for each in of.rounds] for name, of in seen.items()},
        less_is_better=True,
        wanted=50,
        note=f"the slowest took {worst_ms:.0f} ms; this includes delays of the load generator",
    )
    yield from figures_of_rounds(
        f"{what}: memory for each member",
        "KB",
        {name: [of.bytes_per_member / 1e3] for name, of in seen.items()},
        less_is_better=True,
        wanted=8,
        note="resident memory"
        + ("; Kafka's depends on its heap settings" if KAFKA in seen else ""),
    )
