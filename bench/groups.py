"""How long do large groups take to form, and to close up when one member goes?

Members beat every half second; connections are made before the clock starts. A group is formed
from the first Join until all members have their assignment in one generation. With no initial
delay the first member is alone in a generation of its own and learns of the others at its next
beat, on either broker, so half a second is the least.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

from bench.apart import Apart
from bench.brokers import KAFKA, Broker, Hold, ours, starts, watched
from bench.figures import Figure, number
from bench.machine import LOAD_CORE
from bench.members import Group, dismiss, form, group_of
from bench.probing import probe, slowest

TITLE = "Groups"

_BEAT_S = 0.5
_SESSION_MS = 6_000


class Forming(NamedTuple):
    """One group, formed; and left by one member, and by another without a word."""

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


def ask(*, is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    """Groups of 1,000 beside Kafka, then 5,000 alone."""
    yield from _beside(is_quick, with_kafka)
    yield from _alone(is_quick)


async def forming(broker: Broker, size: int, tag: str, *, is_whole: bool) -> Forming:
    """Form a group; if the whole story is wanted, let one member leave and one crash."""
    group = await group_of(
        broker.address, f"forming-{tag}", size, beat_s=_BEAT_S, session_ms=_SESSION_MS
    )
    cpu, load_cpu = broker.cpu_s(), time.process_time()
    begin = time.perf_counter()
    took = await form(group)
    cpu, load_cpu = broker.cpu_s() - cpu, time.process_time() - load_cpu
    generations = group.generations
    left = crashed = float("nan")
    if is_whole:
        await asyncio.sleep(2 * _BEAT_S)
        left = await _without_one(group, "leave")
        await asyncio.sleep(2 * _BEAT_S)
        crashed = await _without_one(group, "crash")
    await dismiss(group)
    return Forming(begin, begin + took, generations, cpu, load_cpu, left, crashed)


async def _without_one(group: Group, how: str) -> float:
    """Seconds until the others are stable in a new generation after one has gone."""
    gone = group.members.pop(len(group.members) // 2)
    closing_up = group.forms(len(group.members))
    begin = time.perf_counter()
    getattr(gone, how)()
    return await closing_up - begin


def _beside(is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    size, warm_ups, rounds = (200, 1, 1) if is_quick else (1_000, 4, 3)
    seen: dict[str, list[Forming]] = {}
    with ExitStack() as stack:
        load = stack.enter_context(Apart(LOAD_CORE))
        brokers = [stack.enter_context(start()) for start in starts(with_kafka)]
        for turn in range(warm_ups + rounds):
            for broker in brokers:
                is_whole = turn >= warm_ups
                formed = load.run(forming, broker, size, str(turn), is_whole=is_whole)
                if is_whole:
                    seen.setdefault(broker.name, []).append(formed)

    def beside(
        what: str, field: str, *, note: str = "", ratio_wanted: float | None = None
    ) -> Figure:
        middles = [statistics.median(getattr(f, field) for f in seen[name]) for name in seen]
        return Figure(
            what=what,
            unit="s",
            ours=middles[0],
            peer_name=KAFKA if KAFKA in seen else "",
            peer=middles[1] if KAFKA in seen else None,
            less_is_better=True,
            ratio_wanted=ratio_wanted,
            note=note,
        )

    warmed = f"after {warm_ups} such groups as warm-up, the median of {rounds}"
    yield beside(f"{size:,} members form a group", "took_s", ratio_wanted=1.0, note=warmed)
    yield beside("the same: CPU of the broker", "broker_cpu_s", note=_generations(seen))
    yield beside(f"one of {size:,} leaves, until the other members are stable again", "left_s")
    yield beside(
        f"one of {size:,} crashes, the same; its session is {_SESSION_MS / 1e3:g} s", "crashed_s"
    )


def _generations(seen: dict[str, list[Forming]]) -> str:
    told = (
        f"{name}: {statistics.median(f.generations for f in of):g} generations, "
        f"{statistics.median(f.load_cpu_s for f in of):.2f} s CPU of the members"
        for name, of in seen.items()
    )
    return "; ".join(told)


def _alone(is_quick: bool) -> Iterator[Figure]:
    size, rounds = (1_000, 1) if is_quick else (5_000, 3)
    with ours() as broker, Apart(LOAD_CORE) as load:
        seen = []
        for turn in range(rounds):
            with Apart(LOAD_CORE, is_urgent=True) as prober:
                probing = prober.begin(probe, broker.address)
                formed = load.run(forming, broker, size, f"large-{turn}", is_whole=False)
                prober.stop()
                seen.append((formed, slowest(probing.result(), formed.begin_s, formed.end_s)))
    formed, _ = sorted(seen, key=lambda pair: pair[0].took_s)[len(seen) // 2]
    yield Figure(
        what=f"{size:,} members form a group",
        unit="s",
        ours=formed.took_s,
        less_is_better=True,
        wanted=2,
        note=f"{formed.generations} generations; CPU: broker {number(formed.broker_cpu_s)} s, "
        f"members {number(formed.load_cpu_s)} s",
    )
    yield _held(size)
    waited = min((slow for _, slow in seen), key=lambda slow: slow.took_s)
    yield Figure(
        what="the same: longest wait of another client for a response",
        unit="ms",
        ours=waited.took_s * 1e3,
        less_is_better=True,
        note=f"a separate prober sends ApiVersions every 2 ms; the best of {rounds}, before "
        f"which the prober itself woke {waited.late_s * 1e3:.1f} ms late",
    )


def _held(size: int) -> Figure:
    """How long one callback holds the loop, on a broker that is watched from within."""
    holds: list[Hold] = []
    with watched(holds) as broker, Apart(LOAD_CORE) as load:
        load.run(forming, broker, size, "watched", is_whole=False)
    longest = max(holds, key=lambda hold: hold.held_s, default=Hold(0.01, "nowhere"))
    where = longest.where.strip().splitlines()[-1].strip()
    return Figure(
        what="the same: longest callback on the event loop",
        unit="ms",
        ours=longest.held_s * 1e3,
        less_is_better=True,
        wanted=100,
        note=f"sampled every 2 ms; the callback was at: {where}",
    )
