"""Time for large groups to form, and to become stable again after one member leaves.

Members send heartbeats every half second. Connections are opened before the measurement starts. A
group is formed when all members have their assignment in the same generation; the time counts from
the first JoinGroup. Without an initial delay, the first member is alone in its generation, on
either broker. It learns of the other members at its next heartbeat, so the minimum is half a
second.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

from bench.brokers import KAFKA, OURS, Broker, LongCallback, monitored, ours, starts
from bench.figures import Figure, figures_of_rounds, number
from bench.machine import LOAD_CORE
from bench.members import Group, connect_group, form, leave_all
from bench.prober import probe, slowest
from bench.worker_process import WorkerProcess

TITLE = "Groups"

_HEARTBEAT_INTERVAL_S = 0.5
_SESSION_MS = 6_000


class FormedGroup(NamedTuple):
    """The times of one group: formed, then left by one member, then after a crash of another."""

    begin_s: float
    end_s: float
    generations: int
    broker_cpu_s: float
    load_cpu_s: float
    left_s: float
    crashed_s: float

    @property
    def took_s(self) -> float:
        return self.end_s - self.begin_s


def measure(*, is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    """Compare groups of 1,000 with Kafka, then measure 5,000 on our broker."""
    yield from _compared(is_quick, with_kafka)
    yield from _large_group(is_quick)


async def form_group(broker: Broker, size: int, tag: str, *, with_departures: bool) -> FormedGroup:
    """Form a group; ``with_departures``, one member then leaves and one crashes."""
    group = await connect_group(
        broker.address,
        f"forming-{tag}",
        size,
        heartbeat_interval_s=_HEARTBEAT_INTERVAL_S,
        session_ms=_SESSION_MS,
    )
    cpu, load_cpu = broker.cpu_s(), time.process_time()
    begin = time.perf_counter()
    took = await form(group)
    cpu, load_cpu = broker.cpu_s() - cpu, time.process_time() - load_cpu
    generations = group.generations
    left = crashed = float("nan")
    if with_departures:
        await asyncio.sleep(2 * _HEARTBEAT_INTERVAL_S)
        left = await _without_one(group, "leave")
        await asyncio.sleep(2 * _HEARTBEAT_INTERVAL_S)
        crashed = await _without_one(group, "crash")
    await leave_all(group)
    return FormedGroup(begin, begin + took, generations, cpu, load_cpu, left, crashed)


async def _without_one(group: Group, how: str) -> float:
    """Let a member go; return the seconds until the other members are stable again."""
    member = group.members.pop(len(group.members) // 2)
    formed = group.when_formed(len(group.members))
    begin = time.perf_counter()
    getattr(member, how)()
    return await formed - begin


def _compared(is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    size, warm_ups, rounds = (200, 1, 1) if is_quick else (1_000, 3, 5)
    seen: dict[str, list[FormedGroup]] = {}
    with ExitStack() as stack:
        load = stack.enter_context(WorkerProcess(LOAD_CORE))
        started = starts(with_kafka, with_kfake=True)
        brokers = [stack.enter_context(broker) for broker in started]
        for turn in range(warm_ups + rounds):
            for broker in brokers:
                with_departures = turn >= warm_ups
                formed = load.run(
                    form_group, broker, size, str(turn), with_departures=with_departures
                )
                if with_departures:
                    seen.setdefault(broker.name, []).append(formed)

    def figures(what: str, field: str, *, note: str = "") -> Iterator[Figure]:
        of_field = {name: [getattr(one, field) for one in of] for name, of in seen.items()}
        return figures_of_rounds(
            what, "s", of_field, less_is_better=True, ratios_wanted={KAFKA: 1.0}, note=note
        )

    warmed = f"after {warm_ups} such groups as warm-up, the median of {rounds}"
    yield from figures(f"{size:,} members form a group", "took_s", note=warmed)
    yield from figures("the same: CPU of the broker", "broker_cpu_s", note=_generations(seen))
    yield from figures(
        f"one of {size:,} leaves, until the other members are stable again", "left_s"
    )
    yield from figures(
        f"one of {size:,} crashes, the same; its session is {_SESSION_MS / 1e3:g} s", "crashed_s"
    )


def _generations(seen: dict[str, list[FormedGroup]]) -> str:
    texts = (
        f"{name}: {statistics.median(f.generations for f in of):g} generations, "
        f"{statistics.median(f.load_cpu_s for f in of):.2f} s CPU of the members"
        for name, of in seen.items()
    )
    return "; ".join(texts)


def _large_group(is_quick: bool) -> Iterator[Figure]:
    size, rounds = (1_000, 1) if is_quick else (5_000, 5)
    seen = []
    with ours() as broker, WorkerProcess(LOAD_CORE) as load:
        for turn in range(rounds):
            with WorkerProcess(LOAD_CORE, is_urgent=True) as prober:
                probing = prober.submit(probe, broker.address)
                formed = load.run(form_group, broker, size, f"large-{turn}", with_departures=False)
                prober.stop()
                seen.append((formed, slowest(probing.result(), formed.begin_s, formed.end_s)))
    formed, _ = sorted(seen, key=lambda pair: pair[0].took_s)[len(seen) // 2]
    yield from figures_of_rounds(
        f"{size:,} members form a group",
        "s",
        {OURS: [each.took_s for each, _ in seen]},
        less_is_better=True,
        wanted=1,
        note=f"{formed.generations} generations; CPU: broker {number(formed.broker_cpu_s)} s, "
        f"members {number(formed.load_cpu_s)} s",
    )
    yield _longest_callback(size)
    late_ms = max(slow.late_s for _, slow in seen) * 1e3
    yield from figures_of_rounds(
        "the same: longest wait of another client for a response",
        "ms",
        {OURS: [slow.took_s * 1e3 for _, slow in seen]},
        less_is_better=True,
        wanted=50,
        note=f"a separate prober sends ApiVersions every 2 ms; median of {rounds}; before these "
        f"requests the prober itself woke up to {late_ms:.1f} ms late",
    )


def _longest_callback(size: int) -> Figure:
    """Measure the longest callback on the event loop, with a monitored broker."""
    callbacks: list[LongCallback] = []
    with monitored(callbacks) as broker, WorkerProcess(LOAD_CORE) as load:
        load.run(form_group, broker, size, "monitored", with_departures=False)
    return callback_figure("the same: longest callback on the event loop", callbacks)


def callback_figure(what: str, callbacks: Iterable[LongCallback]) -> Figure:
    """Return the figure of the longest callback."""
    longest = max(
        callbacks, key=lambda callback: callback.duration_s, default=LongCallback(0.01, "nowhere")
    )
    where = longest.where.strip().splitlines()[-1].strip()
    return Figure(
        what=what,
        unit="ms",
        ours=longest.duration_s * 1e3,
        less_is_better=True,
        wanted=100,
        note=f"sampled every 2 ms; {number(longest.cpu_s * 1e3)} ms CPU of the loop's thread; "
        f"the callback was at: {where}",
    )
