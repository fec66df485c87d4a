"""The claims about rebalances: their number, and what stops meanwhile.

The functions are as in `size_claims`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from partage.assignors import Sticky
from partage.assignors.base import Assignor
from partage.proposals.comparison.cell import CellRun, PhaseResult, Workload, run_cell
from partage.proposals.comparison.claim import (
    Claim,
    ClaimVerdict,
    Judgement,
    combine,
    combine_holds,
    join_words,
)
from partage.proposals.comparison.claim_worlds import SETTINGS, member_names, new_world
from partage.proposals.designs.catalog import find_design
from partage.proposals.designs.two_phase import TwoPhaseCooperative, TwoPhaseEager
from partage.proposals.simulation.design import MemberTemplate
from partage.proposals.simulation.world import WorldOptions

# An upgrade with subscription hashes


class UpgradeActivity(msgspec.Struct, frozen=True, kw_only=True):
    """The members with partitions after each restart of an upgrade.

    Attributes:
        members: The members of the group.
        hashed: The active members after each restart, if members send hashes.
        plain: The same if they send their topics.
    """

    members: int
    hashed: list[int]
    plain: list[int]

    @property
    def is_halved(self) -> bool:
        """True if hashes halve the group, except for one member, and topics do not."""
        half = self.members / 2
        return abs(min(self.hashed) - half) <= 1 and min(self.plain) > half + 1


def judge_upgrade_with_hashes(upgrades: Sequence[UpgradeActivity]) -> Judgement:
    """Return the verdict for the active members during upgrades."""
    texts = (
        f"{min(each.hashed)} of {each.members} members with hashes, {min(each.plain)} without"
        for each in upgrades
    )
    return Judgement(
        verdict=combine_holds(each.is_halved for each in upgrades),
        reason=f"The fewest active members were: {'; '.join(texts)}.",
    )


def _active_members(design: str, members: int) -> list[int]:
    """Restart all members with a further topic; return the active ones after each restart."""
    options = WorldOptions(topics={"foo": 2 * members, "bar": 2 * members})
    world = new_world(find_design(design)(*SETTINGS), [], options)
    old, new = frozenset({"foo"}), frozenset({"foo", "bar"})
    for name in member_names(members, "old"):
        world.start_member(MemberTemplate(name=name, topics=old))
    world.run(60_000)
    active = []
    for number, name in enumerate(member_names(members, "new")):
        world.stop_member(world.members[number])
        world.run(5_000)
        world.start_member(MemberTemplate(name=name, topics=new))
        world.run(60_000)
        active.append(sum(each.is_reading for each in world.live_members))
    return active


def measure_upgrade_with_hashes(cpu_clock_ns: Callable[[], int]) -> Claim:
    """Capacity during an upgrade with subscription hashes."""
    upgrades = [
        UpgradeActivity(
            members=members,
            hashed=_active_members("multi-assignor-hashes", members),
            plain=_active_members("multi-assignor", members),
        )
        for members in (4, 9, 10)
    ]
    figures = []
    for each in upgrades:
        name = f"{each.members} members"
        figures += [
            (f"{name}, hashes: active after each restart", ", ".join(map(str, each.hashed))),
            (f"{name}, topics: active after each restart", ", ".join(map(str, each.plain))),
        ]
    judgement = judge_upgrade_with_hashes(upgrades)
    return Claim(
        title="Half of the capacity during an upgrade with subscription hashes",
        statement=(
            "“… during a rolling upgrade, the capacity of the cluster will be temporarily halved, "
            "which may cause lag in the group.”"
        ),
        setup=(
            "The members of three groups restart one after the other with a second topic. Active "
            "members have partitions one minute after a restart. The same upgrade without hashes "
            "is for comparison."
        ),
        rule=(
            "Reproduced if, in each group, the fewest active members are half of the group with "
            "at most one member of difference, and more without hashes."
        ),
        figures=figures,
        verdict=judgement.verdict,
        explanation=judgement.reason,
    )


# Disagreement

_STALE_MS: Final = 60_000
_DISAGREEING: Final = 10


class DisagreementJoins(msgspec.Struct, frozen=True, kw_only=True):
    """Joins in the second half of a disagreement about metadata.

    Attributes:
        refresh_s: How often a member refreshes its metadata.
        refreshes: The refreshes of all members in this time.
        joins: The joins of each member.
        remedied: Those with all metadata from the coordinator after a disagreement.
    """

    refresh_s: float
    refreshes: float
    joins: float
    remedied: float

    @property
    def is_endless(self) -> bool:
        """True if rebalances cause rebalances: there are more of them than refreshes."""
        return self.joins > self.refreshes + 1

    @property
    def is_remedied(self) -> bool:
        """True if no member joins: all members have refreshed their metadata before this time, so
        each of these joins would come from the disagreement.
        """
        return self.remedied == 0


def judge_disagreement(measured: Sequence[DisagreementJoins]) -> Judgement:
    """Return the verdict for the joins during disagreements."""
    verdicts, texts = [], []
    for each in measured:
        if not each.is_endless:
            verdicts.append(ClaimVerdict.REFUTED)
            effect = "so the disagreement alone causes no endless rebalances"
        elif each.is_remedied:
            verdicts.append(ClaimVerdict.REPRODUCED)
            effect = "so rebalances cause rebalances, and the remedy ends this"
        else:
            verdicts.append(ClaimVerdict.DEPENDS)
            effect = "so rebalances cause rebalances, and the remedy does not end this"
        texts.append(
            f"With a refresh every {each.refresh_s:g} s, each member joins {each.joins:,.0f} times "
            f"in a time with {each.refreshes:,.0f} refreshes, and {each.remedied:,g} times with "
            f"the remedy, {effect}."
        )
    return Judgement(verdict=combine(verdicts), reason=" ".join(texts))


def _joins(design: str, refresh_ms: int) -> float:
    """Return the joins of each member in the second half of a disagreement."""
    options = WorldOptions(
        topics={"t": 20}, stale_metadata_ms=_STALE_MS, metadata_refresh_ms=refresh_ms
    )
    world = new_world(find_design(design)(*SETTINGS), member_names(_DISAGREEING), options)
    world.run(60_000)
    world.add_partitions("t", 5)
    world.run(_STALE_MS // 2)
    world.traffic.take()
    world.run(_STALE_MS // 2)
    return world.traffic.take().messages["JoinGroupRequest"] / _DISAGREEING


def measure_disagreement(cpu_clock_ns: Callable[[], int]) -> Claim:
    """Rebalances under sustained disagreement about metadata."""
    measured = [
        DisagreementJoins(
            refresh_s=refresh_ms / 1000,
            refreshes=_DISAGREEING * _STALE_MS / 2 / refresh_ms,
            joins=_joins("multi-assignor", refresh_ms),
            remedied=_joins("multi-assignor-coordinator-metadata", refresh_ms),
        )
        for refresh_ms in (2_000, 10_000, 30_000)
    ]
    figures = []
    for each in measured:
        name = f"refresh every {each.refresh_s:g} s"
        figures += [
            (f"{name}: refreshes of all members", f"{each.refreshes:,.0f}"),
            (f"{name}: joins of each member", f"{each.joins:,.1f}"),
            (f"{name}, remedied: joins of each member", f"{each.remedied:,.1f}"),
        ]
    judgement = judge_disagreement(measured)
    return Claim(
        title="Endless rebalances under sustained disagreement about metadata",
        statement=(
            "“… sustained disagreement might lead to continual rebalancing. … this issue can be "
            "resolved by having the consumers fetch their metadata from the coordinator”"
        ),
        setup=(
            f"A topic of {_DISAGREEING} members gets partitions. For {_STALE_MS // 1000} s every "
            "other broker serves the old count; the figures are those of the second half. Members "
            "refresh their metadata at three intervals; Kafka's default is 300 s, at which few "
            "members would notice the change in this time. After a second disagreement in a row, a "
            "member waits 0.1 s before it fetches metadata again, which limits the joins. With the "
            "remedy, a member that has found a disagreement fetches all metadata from the "
            "coordinator from then on, also when it refreshes it."
        ),
        rule=(
            "A refresh that finds another count causes one rebalance, in which each member joins "
            "once. More joins than refreshes of all members mean that rebalances cause "
            "rebalances. Reproduced if this happens at each interval, and if no member joins with "
            "the remedy: each has refreshed its metadata in the first half."
        ),
        figures=figures,
        verdict=judgement.verdict,
        explanation=judgement.reason,
    )


# Cooperative rebalancing

_SAVING_SEEDS: Final = (1, 2, 3)
_SAVING_PHASES: Final = ("join", "leave", "crash")


class _StickyEager(TwoPhaseEager):
    """The eager protocol with an assignor that moves few partitions."""

    def _assignor(self, metadata: bytes) -> Assignor:
        return Sticky()


def judge_cooperative_savings(
    unread_s: Mapping[str, Sequence[tuple[float, float]]],
) -> Judgement:
    """Return the verdict for the time without readers of the partitions.

    Args:
        unread_s: For each phase, the partition-seconds of the eager and of the cooperative protocol
            in each world.
    """
    holds, texts = [], []
    for phase, worlds in unread_s.items():
        fewer = sum(cooperative < eager for eager, cooperative in worlds)
        holds.append(fewer == len(worlds))
        eager, cooperative = (sum(each) / len(worlds) for each in zip(*worlds, strict=True))
        texts.append(
            f"{phase}: {eager:.2f} partition-seconds eager, {cooperative:.2f} cooperative, less "
            f"in {fewer} of {len(worlds)} worlds"
        )
    return Judgement(
        verdict=combine_holds(holds), reason=f"The means are, for the phase {'; '.join(texts)}."
    )


def measure_cooperative_savings(cpu_clock_ns: Callable[[], int]) -> Claim:
    """The savings of cooperative rebalancing."""
    factories = {
        "eager with round robin": TwoPhaseEager,
        "eager with sticky": _StickyEager,
        "cooperative with cooperative-sticky": TwoPhaseCooperative,
    }
    results = {
        name: [
            CellRun(
                Workload(design=factory.name, members=50, phases=_SAVING_PHASES, seed=seed),
                cpu_clock_ns,
                factory,
            ).run()
            for seed in _SAVING_SEEDS
        ]
        for name, factory in factories.items()
    }
    figures = []
    for phase in _SAVING_PHASES:
        for name, cells in results.items():
            of_phase = [cell.phase(phase) for cell in cells]
            unread = ", ".join(f"{each.unread_partition_s:.2f}" for each in of_phase)
            moved = ", ".join(str(each.moved_partitions) for each in of_phase)
            figures += [
                (f"{phase}, {name}: partition-seconds without a reader", unread),
                (f"{phase}, {name}: partitions moved", moved),
            ]
    _round_robin, sticky, cooperative = results.values()
    judgement = judge_cooperative_savings(
        {
            phase: [
                (one.phase(phase).unread_partition_s, other.phase(phase).unread_partition_s)
                for one, other in zip(sticky, cooperative, strict=True)
            ]
            for phase in _SAVING_PHASES
        }
    )
    return Claim(
        title="Savings of cooperative rebalancing",
        statement=(
            "The available texts have no figure. KIP-429 says of an upgrade: members that were "
            "restarted "
            "“… will then choose COOPERATIVE protocol and not revoke "
            "partitions while others not-yet-bounced will still go with EAGER and revoke "
            "everything.”"
        ),
        setup=(
            f"A group of 50 members, in {len(_SAVING_SEEDS)} worlds with different seeds; each "
            "figure lists them. The two sticky assignors differ in the protocol only. In the phase "
            "“crash”, both protocols wait for the end of the session first."
        ),
        rule=(
            "Reproduced if the cooperative protocol has fewer partition-seconds without a reader "
            "than the eager one with sticky, in each phase and each world."
        ),
        figures=figures,
        verdict=judgement.verdict,
        explanation=judgement.reason,
    )


# The first design


def judge_closing(stopping: PhaseResult, closing: PhaseResult) -> Judgement:
    """Return the verdict for closed connections instead of StopFetcher."""
    if not closing.is_stable:
        return Judgement(
            verdict=ClaimVerdict.REFUTED,
            reason="With closed connections the rebalance does not complete.",
        )
    costs = [
        f"{text} ({theirs:,g} instead of {ours:,g})"
        for text, theirs, ours in (
            ("records read again", closing.duplicate_records, stopping.duplicate_records),
            (
                "partition-seconds without a reader",
                closing.unread_partition_s,
                stopping.unread_partition_s,
            ),
        )
        if theirs > ours
    ]
    if costs:
        return Judgement(
            verdict=ClaimVerdict.DEPENDS,
            reason=f"The rebalance completes, but it costs more {join_words(costs)}.",
        )
    return Judgement(
        verdict=ClaimVerdict.REPRODUCED,
        reason="The rebalance completes, and costs no more than with StopFetcher.",
    )


def measure_closing(cpu_clock_ns: Callable[[], int]) -> Claim:
    """Closing the connections against StopFetcher, when a consumer joins."""
    results = [
        run_cell(Workload(design=name, members=50, phases=("join",))).phase("join")
        for name in ("broker-side", "broker-side-closing")
    ]
    figures = []
    for name, result in zip(("StopFetcher", "closed connections"), results, strict=True):
        stable_s = result.stable_after_s
        figures += [
            (f"{name}: messages", f"{result.messages:,}"),
            (f"{name}: bytes", f"{result.bytes:,}"),
            (f"{name}: stable after", "never" if stable_s is None else f"{stable_s:.2f} s"),
            (f"{name}: partition-seconds without a reader", f"{result.unread_partition_s:.1f}"),
            (f"{name}: records that were read again", f"{result.duplicate_records:,}"),
        ]
    judgement = judge_closing(*results)
    return Claim(
        title="Closed connections against StopFetcher",
        statement=(
            "“Rebalance is triggered by killing the socket connection to the remaining consumers "
            "in the group. … Once all alive consumers re-register with the co-ordinator, it "
            "communicates the new partition ownership to each of the consumers in the "
            "RegisterConsumerResponse, thereby completing the rebalance operation.”"
        ),
        setup=(
            "One consumer joins a group of 50. The response to StopFetcher has the offsets that "
            "were read; a closed connection has none since the last ping."
        ),
        rule=(
            "Refuted if the rebalance does not complete. Reproduced if it completes with no more "
            "records read again and no more time without a reader than with StopFetcher. "
            "Otherwise it depends."
        ),
        figures=figures,
        verdict=judgement.verdict,
        explanation=judgement.reason,
    )
