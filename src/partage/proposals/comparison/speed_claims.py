"""The claim about the speed of rebalances with the consumer group protocol (KIP-848).

The functions are as in `size_claims`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean
from typing import Final

import msgspec

from partage.proposals.comparison.cell import CellRun, PhaseResult, Workload
from partage.proposals.comparison.claim import Claim, Judgement, combine_holds
from partage.proposals.designs.consumer_protocol import ConsumerProtocol848
from partage.proposals.designs.two_phase import TwoPhaseCooperative, TwoPhaseEager

#: How many times as fast the claim says that rebalances are.
SPEEDUP: Final = 20
_SEEDS: Final = (1, 2, 3)
_MEMBERS_OF_GROWTH: Final = 10
_NEW_PARTITIONS: Final = 900
_MEMBERS_OF_JOIN: Final = 100
_DESIGNS: Final = (TwoPhaseEager.name, TwoPhaseCooperative.name, ConsumerProtocol848.name)


class SpeedCase(msgspec.Struct, frozen=True, kw_only=True):
    """A rebalance, and its seconds in each world; infinite if the group did not become stable.

    Attributes:
        name: What happens.
        classic_s: The seconds with the eager protocol.
        consumer_s: The seconds with the consumer protocol.
    """

    name: str
    classic_s: Sequence[float]
    consumer_s: Sequence[float]

    @property
    def speedup(self) -> float:
        """The quotient of the mean seconds: above 1 if the consumer protocol is faster."""
        consumer_s = fmean(self.consumer_s)
        return 0.0 if math.isinf(consumer_s) else fmean(self.classic_s) / consumer_s


def judge_rebalance_speed(cases: Sequence[SpeedCase]) -> Judgement:
    """Return the verdict for the speed of rebalances."""
    texts = [f"{each.name}: {each.speedup:,.1f} times as fast as eager" for each in cases]
    return Judgement(
        verdict=combine_holds(each.speedup >= SPEEDUP for each in cases),
        reason=f"The speed is, for {'; '.join(texts)}.",
    )


def measure_speed_case(
    name: str,
    workload: Workload,
    disturb: Callable[[CellRun], None],
    cpu_clock_ns: Callable[[], int],
    seeds: Sequence[int] = _SEEDS,
) -> tuple[SpeedCase, list[tuple[str, str]]]:
    """Measure one rebalance with each protocol.

    Args:
        name: What happens.
        workload: The group, with any design and seed.
        disturb: Causes the rebalance.
        cpu_clock_ns: Measures CPU time.
        seeds: The seeds of the worlds.

    Returns:
        The case, and its figures.
    """
    results: dict[str, list[PhaseResult]] = {}
    for design in _DESIGNS:
        for number, seed in enumerate(seeds):
            run = CellRun(msgspec.structs.replace(workload, design=design, seed=seed), cpu_clock_ns)
            run.measure("form", partial(run.start_members, workload.members))
            # The members of a new group send their heartbeats together.
            run.world.run(workload.heartbeat_interval_ms * (2 * number + 1) // (2 * len(seeds)))
            results.setdefault(design, []).append(run.measure(name, partial(disturb, run)))
    figures = []
    for design, phases in results.items():
        unread = ", ".join(f"{each.unread_partition_s:,.1f}" for each in phases)
        figures += [
            (f"{name}, {design}: time in s", ", ".join(f"{_seconds(each):.2f}" for each in phases)),
            (f"{name}, {design}: partition-seconds without a reader", unread),
        ]
    case = SpeedCase(
        name=name,
        classic_s=[_seconds(each) for each in results[TwoPhaseEager.name]],
        consumer_s=[_seconds(each) for each in results[ConsumerProtocol848.name]],
    )
    return case, figures


def _seconds(phase: PhaseResult) -> float:
    return math.inf if phase.stable_after_s is None else phase.stable_after_s


def _add_partitions(run: CellRun) -> None:
    run.world.add_partitions(next(iter(run.world.topics)), _NEW_PARTITIONS)


def measure_rebalance_speed(cpu_clock_ns: Callable[[], int]) -> Claim:
    """Rebalances that are up to 20 times as fast."""
    growth = Workload(design="", members=_MEMBERS_OF_GROWTH, partitions=100, phases=())
    measured = [
        measure_speed_case(
            f"{_NEW_PARTITIONS} new partitions, metadata refresh every {refresh_s} s",
            msgspec.structs.replace(growth, metadata_refresh_ms=refresh_s * 1000),
            _add_partitions,
            cpu_clock_ns,
        )
        for refresh_s in (300, 30)
    ]
    measured.append(
        measure_speed_case(
            f"a member joins {_MEMBERS_OF_JOIN} others",
            Workload(design="", members=_MEMBERS_OF_JOIN, phases=()),
            CellRun.join,
            cpu_clock_ns,
        )
    )
    judgement = judge_rebalance_speed([case for case, _ in measured])
    return Claim(
        title="Rebalances up to 20 times as fast with the consumer protocol",
        statement=(
            "KIP-848 has no figure. The documentation of Karafka says that the protocol “… can "
            "deliver up to 20x faster rebalances”, and names one case: “a group with 10 consumers "
            "adding 900 partitions completes rebalancing in 5 seconds instead of 103 seconds”."
        ),
        setup=(
            f"A topic of {_MEMBERS_OF_GROWTH} members grows from 100 to {100 + _NEW_PARTITIONS} "
            "partitions. With the classic protocol the leader finds them when it refreshes its "
            "metadata: 300 s is Kafka's default, 30 s that of this comparison. Then one member "
            f"joins a group of {_MEMBERS_OF_JOIN}, with two partitions each. The heartbeat "
            "interval is 3 s for both protocols, and each change comes at another time of this "
            "interval. Members learn of a rebalance with their heartbeats. With the consumer "
            "protocol, the next reader of a partition learns with a further heartbeat that it is "
            "free. The time is until the last change of a reader, in "
            f"{len(_SEEDS)} worlds with different seeds."
        ),
        rule=(
            f"Reproduced if the consumer protocol is at least {SPEEDUP} times as fast as the "
            "eager protocol in each case, in the mean of the worlds. Refuted if it is so in none. "
            "Otherwise it depends on the case."
        ),
        figures=[figure for _, figures in measured for figure in figures],
        verdict=judgement.verdict,
        explanation=judgement.reason,
    )
