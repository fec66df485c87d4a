"""The claims of the documents about their designs, measured.

A function ``measure_…`` runs the cells of a claim. A function ``judge_…`` returns the verdict for
its figures. `variant_claims` has the claims about variants of a design.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from partage.assignors import Sticky
from partage.assignors.base import Assignor
from partage.proposals.comparison import variant_claims
from partage.proposals.comparison.cell import CellRun, Workload, run_cell
from partage.proposals.comparison.claim import TOLERANCE, Claim, ClaimVerdict
from partage.proposals.designs.catalog import find_design
from partage.proposals.designs.two_phase import TwoPhaseCooperative, TwoPhaseEager
from partage.proposals.join_group.settings import CoordinatorSettings, MemberSettings
from partage.proposals.simulation.design import MemberTemplate
from partage.proposals.simulation.world import World, WorldOptions

_STALE_MS: Final = 10_000


def _form_bytes(design: str, members: int, metadata_kb: float) -> int:
    cell = Workload(design=design, members=members, metadata_kb=metadata_kb, phases=())
    return run_cell(cell).phases[0].bytes


def judge_consumers_per_coordinator(cpu_shares: Sequence[float]) -> ClaimVerdict:
    """Return the verdict for the coordinators' use of one core, from 0 to 1 if it keeps up."""
    if max(cpu_shares) >= 1:
        return ClaimVerdict.REFUTED
    return ClaimVerdict.REPRODUCED if max(cpu_shares) < 0.5 else ClaimVerdict.DEPENDS


def measure_consumers_per_coordinator(cpu_clock_ns: Callable[[], int]) -> Claim:
    """5,000 consumers on one coordinator."""
    figures, shares = [], []
    for design in ("broker-side", "multi-assignor", "single-assignor", "two-phase-cooperative"):
        run = CellRun(Workload(design=design, members=5_000, phases=("steady",)), cpu_clock_ns)
        result = run.run()
        steady = result.phase("steady")
        share = steady.coordinator_cpu_ms / 45_000  # 30 s, and 15 s in which it settles
        shares.append(share)
        figures += [
            (
                f"{design}: CPU of the coordinator for heartbeats or pings, and commits",
                f"{share:.1%}",
            ),
            (
                f"{design}: CPU to form the group",
                f"{result.phase('form').coordinator_cpu_ms / 1000:.2f} s",
            ),
        ]
    return Claim(
        title="5,000 consumers on one coordinator",
        statement=(
            "“… with a single coordinator we should support up to 5K consumers (the bottleneck "
            "should be the number of socket channels a single machine can have)”"
        ),
        figures=figures,
        verdict=judge_consumers_per_coordinator(shares),
        explanation=(
            "The verdict is about the CPU time of the state machines. Sockets and encoding are "
            "not included; docs/benchmarks.md has 15,000 connections to the accepted design."
        ),
    )


def judge_metadata_for_all(sent_bytes: int) -> ClaimVerdict:
    """Return the verdict for the bytes of one rebalance if all members receive all metadata."""
    is_near = abs(sent_bytes / 1e9 - 1) < TOLERANCE
    return ClaimVerdict.REPRODUCED if is_near else ClaimVerdict.REFUTED


def measure_metadata_for_all(cpu_clock_ns: Callable[[], int]) -> Claim:
    """100 members with 100 KB of metadata."""
    designs = ("multi-assignor", "single-assignor", "two-phase-eager")
    sent = {design: _form_bytes(design, 100, 100) for design in designs}
    return Claim(
        title="100 members with 100 KB of metadata cost 1 GB for each rebalance",
        statement=(
            "“… with a per-member metadata size of 100KB, in a group of 100 members, each join "
            "group response would contain 10MB of data, which means that the coordinator would "
            "have to transfer 1GB total on every rebalance.”"
        ),
        figures=[(f"{design}: bytes to form the group", f"{n:,}") for design, n in sent.items()],
        verdict=judge_metadata_for_all(sent["multi-assignor"]),
        explanation=(
            "The figures are those of a new group. If one member assigns, all metadata is sent "
            "twice instead of 101 times. In the accepted design it is three times, because a new "
            "member joins twice (KIP-394), and twice in a later rebalance."
        ),
    )


def growth_exponent(small: tuple[int, int], large: tuple[int, int]) -> float:
    """Return the exponent of the growth between two points.

    Args:
        small: Members and bytes of the smaller group.
        large: Members and bytes of the larger group.
    """
    return math.log(large[1] / small[1]) / math.log(large[0] / small[0])


def judge_growth(multi: float, single: float, single_without_metadata: float) -> ClaimVerdict:
    """Return the verdict for the exponents of many assignors and of a single one.

    Args:
        multi: The exponent of many assignors with much metadata.
        single: That of a single assignor with much metadata.
        single_without_metadata: That of a single assignor with little metadata.
    """
    if multi < 1.9 or single > 1.5:
        return ClaimVerdict.REFUTED
    return ClaimVerdict.REPRODUCED if single_without_metadata < 1.2 else ClaimVerdict.DEPENDS


def measure_growth(cpu_clock_ns: Callable[[], int]) -> Claim:
    """Quadratic against linear growth."""
    figures = []
    exponents = {}
    for design in ("multi-assignor", "single-assignor", "two-phase-eager"):
        for metadata_kb in (0.0, 10.0):
            points = [(n, _form_bytes(design, n, metadata_kb)) for n in (100, 400)]
            exponent = exponents[design, metadata_kb] = growth_exponent(points[0], points[1])
            figures.append(
                (
                    f"{design}, {metadata_kb:g} KB of metadata: exponent from 100 to 400 members",
                    f"{exponent:.2f}",
                )
            )
    verdict = judge_growth(
        exponents["multi-assignor", 10.0],
        exponents["single-assignor", 10.0],
        exponents["single-assignor", 0.0],
    )
    return Claim(
        title="Quadratic against linear growth",
        statement=(
            "“… the total amount of data which the coordinator must forward in the join group "
            "responses increases quadratically with the size of the group.” “Since only one member "
            "has to receive all the metadata for the group, the message overhead "
            "scales linearly with the number of members in the group.”"
        ),
        figures=figures,
        verdict=verdict,
        explanation=(
            "True for the metadata. The response `Joined` of the single assignor also lists the "
            "ids of all members for each member, which is quadratic; with little metadata this "
            "part dominates. The accepted design leaves the list out."
        ),
    )


def judge_upgrade_with_hashes(lowest_share: float) -> ClaimVerdict:
    """Return the verdict for the lowest share of active members during an upgrade."""
    is_half = abs(lowest_share - 0.5) <= TOLERANCE
    return ClaimVerdict.REPRODUCED if is_half else ClaimVerdict.REFUTED


def measure_upgrade_with_hashes(cpu_clock_ns: Callable[[], int]) -> Claim:
    """Capacity during an upgrade with subscription hashes."""
    members = 10
    world = World(
        find_design("multi-assignor-hashes")(
            CoordinatorSettings(), MemberSettings(group_id="upgraded")
        ),
        WorldOptions(topics={"foo": 20, "bar": 20}),
        seed=1,
    )
    old, new = frozenset({"foo"}), frozenset({"foo", "bar"})
    for number in range(members):
        world.start_member(MemberTemplate(name=f"old-{number}", topics=old))
    world.run(60_000)
    active = []
    for number in range(members):
        world.stop_member(world.members[number])
        world.run(5_000)
        world.start_member(MemberTemplate(name=f"new-{number}", topics=new))
        world.run(60_000)
        active.append(sum(each.is_reading for each in world.live_members))
    lowest = min(active)
    return Claim(
        title="Half of the capacity during an upgrade with subscription hashes",
        statement=(
            "“… during a rolling upgrade, the capacity of the cluster will be temporarily halved, "
            "which may cause lag in the group.”"
        ),
        figures=[
            ("active members after each of 10 restarts", ", ".join(map(str, active))),
            ("lowest share of active members", f"{lowest / members:.0%}"),
        ],
        verdict=judge_upgrade_with_hashes(lowest / members),
        explanation="The members outside of the larger sub-group wait without partitions.",
    )


def judge_disagreement(joins_per_s: float, remedied_joins_per_s: float) -> ClaimVerdict:
    """Return the verdict for the joins of each member in the second half of a disagreement."""
    if joins_per_s < 1:
        return ClaimVerdict.REFUTED  # they came to rest
    is_remedied = remedied_joins_per_s < joins_per_s / 10
    return ClaimVerdict.REPRODUCED if is_remedied else ClaimVerdict.DEPENDS


def measure_disagreement(cpu_clock_ns: Callable[[], int]) -> Claim:
    """Rebalances under sustained disagreement about metadata."""
    figures = []
    joins = {}
    for design in ("multi-assignor", "multi-assignor-coordinator-metadata"):
        world = World(
            find_design(design)(CoordinatorSettings(), MemberSettings(group_id="disagreeing")),
            WorldOptions(topics={"t": 20}, stale_metadata_ms=_STALE_MS, metadata_refresh_ms=2_000),
            seed=1,
        )
        for number in range(10):
            world.start_member(MemberTemplate(name=f"m{number}", topics=frozenset({"t"})))
        world.run(60_000)
        world.add_partitions("t", 5)
        world.run(_STALE_MS // 2)
        world.traffic.take()
        world.run(_STALE_MS // 2)
        sent = world.traffic.take().messages["JoinGroupRequest"]
        joins[design] = sent / 10 / (_STALE_MS / 2000)
        figures.append((f"{design}: joins of each member per second", f"{joins[design]:.1f}"))
    endless, remedied = joins.values()
    return Claim(
        title="Endless rebalances under sustained disagreement about metadata",
        statement=(
            "“… sustained disagreement might lead to continual rebalancing. … this issue can be "
            "resolved by having the consumers fetch their metadata from the coordinator”"
        ),
        figures=figures,
        verdict=judge_disagreement(endless, remedied),
        explanation=(
            "Half of the brokers served the old partition count for 10 s; the joins are those of "
            "the second half. With the remedy a member still rejoins when its periodic refresh "
            "reaches a broker with the other count."
        ),
    )


class _StickyEager(TwoPhaseEager):
    """The eager protocol with an assignor that moves few partitions."""

    def _assignor(self, metadata: bytes) -> Assignor:
        return Sticky()


def judge_cooperative_savings(eager_unread_s: float, cooperative_unread_s: float) -> ClaimVerdict:
    """Return the verdict for the time without readers of the partitions."""
    if cooperative_unread_s >= eager_unread_s:
        return ClaimVerdict.REFUTED
    saves_half = cooperative_unread_s < eager_unread_s / 2
    return ClaimVerdict.REPRODUCED if saves_half else ClaimVerdict.DEPENDS


def measure_cooperative_savings(cpu_clock_ns: Callable[[], int]) -> Claim:
    """The savings of cooperative rebalancing."""
    figures = []
    results = {}
    factories = {
        "two-phase-eager with round robin": TwoPhaseEager,
        "two-phase-eager with sticky": _StickyEager,
        "two-phase-cooperative with cooperative-sticky": TwoPhaseCooperative,
    }
    for name, factory in factories.items():
        cell = Workload(design=factory.name, members=50, phases=("join",))
        result = results[name] = CellRun(cell, cpu_clock_ns, factory).run().phase("join")
        figures += [
            (f"{name}: partition-seconds without a reader", f"{result.unread_partition_s:.2f}"),
            (f"{name}: partitions moved", str(result.moved_partitions)),
            (f"{name}: messages", str(result.messages)),
        ]
    _round_robin, sticky, cooperative = results.values()
    return Claim(
        title="Savings of cooperative rebalancing",
        statement=(
            "The available texts have no figure. KIP-429 says of an upgrade: members that were "
            "restarted "
            "“… will then choose COOPERATIVE protocol and not revoke "
            "partitions while others not-yet-bounced will still go with EAGER and revoke "
            "everything.”"
        ),
        figures=figures,
        verdict=judge_cooperative_savings(
            sticky.unread_partition_s, cooperative.unread_partition_s
        ),
        explanation=(
            "One member joins a group of 50. The verdict compares the two sticky assignors, which "
            "move few partitions; round robin moves many more. The cooperative "
            "protocol needs a second rebalance, so it sends more messages."
        ),
    )


#: The measurements of all claims, in the order of the report.
CLAIMS: Final[tuple[Callable[[Callable[[], int]], Claim], ...]] = (
    measure_consumers_per_coordinator,
    measure_metadata_for_all,
    measure_growth,
    measure_upgrade_with_hashes,
    measure_disagreement,
    measure_cooperative_savings,
    *variant_claims.VARIANT_CLAIMS,
)
