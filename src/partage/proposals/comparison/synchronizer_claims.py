"""The claims about the synchronizer: the member that assigns in the design `single-assignor`.

The functions are as in `size_claims`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from partage.proposals.comparison.claim import Claim, ClaimVerdict, Judgement
from partage.proposals.comparison.claim_worlds import (
    GROUP_ID,
    SETTINGS,
    member_names,
    new_world,
)
from partage.proposals.designs.single_assignor import SingleAssignor
from partage.proposals.simulation.design import MemberTemplate
from partage.proposals.simulation.world import WorldOptions
from partage.proposals.single_assignor.coordinator import SynchronizerChoice

#: Two-sided, for a confidence of 95%.
_NORMAL_QUANTILE: Final = 1.96
_WORLDS: Final = range(200)
_UPGRADES: Final = range(20)
_UPGRADED_MEMBERS: Final = 6
_ONE_TOPIC: Final = WorldOptions(topics={"t": 10})


# The timeout


def judge_synchronize_timeout(without_s: float | None, with_s: float | None) -> Judgement:
    """Return the verdict for the time to form, without and with the timeout of the members.

    Args:
        without_s: The time with the coordinator's timeout; None if the group did not form.
        with_s: The time with the members' timeout.
    """
    alone = "does not form" if without_s is None else f"forms in {without_s:.1f} s"
    remedied = "does not form" if with_s is None else f"forms in {with_s:.1f} s"
    if without_s is not None:
        verdict = ClaimVerdict.REFUTED
    else:
        verdict = ClaimVerdict.DEPENDS if with_s is None else ClaimVerdict.REPRODUCED
    return Judgement(
        verdict=verdict,
        reason=(
            f"With the coordinator's timeout the group {alone}; with that of the members it "
            f"{remedied}."
        ),
    )


def formation_s(*, sends_timeout: bool, assign_ms: int, within_s: int = 300) -> float | None:
    """Return when a group forms, in s, if its assignor takes ``assign_ms``; None if it does not.

    Members that send a timeout allow 30 s; the coordinator's default is 10 s.
    """
    settings = msgspec.structs.replace(SETTINGS[1], synchronize_timeout_ms=30_000)
    design = SingleAssignor(SETTINGS[0], settings, sends_timeout=sends_timeout, assign_ms=assign_ms)
    world = new_world(design, member_names(5), WorldOptions(topics={"t": 10}))
    begin_ms = world.clock.now_ms
    while world.readers.unread:
        if world.clock.now_ms - begin_ms >= within_s * 1000:
            return None
        world.run(100)
    return (world.clock.now_ms - begin_ms) / 1000


def measure_synchronize_timeout(cpu_clock_ns: Callable[[], int]) -> Claim:
    """The race between the synchronizer and the coordinator's timeout."""
    figures = []
    formed: dict[tuple[int, bool], float | None] = {}
    for assign_s in (8, 12):
        for sends_timeout in (False, True):
            seconds = formation_s(sends_timeout=sends_timeout, assign_ms=assign_s * 1000)
            formed[assign_s, sends_timeout] = seconds
            name = "members send synchronize_timeout" if sends_timeout else "coordinator's timeout"
            text = "not in 300 s" if seconds is None else f"{seconds:.1f} s"
            figures.append((f"the assignor takes {assign_s} s, {name}: time to form", text))
    judgement = judge_synchronize_timeout(formed[12, False], formed[12, True])
    return Claim(
        title="The race that synchronize_timeout removes",
        statement=(
            "“In the worst case, if the timeout is actually lower than the synchronization time, "
            "then the group will never be created. One possible way to address this issue is to "
            "add a synchronize_timeout to the join group request …”"
        ),
        setup=(
            "Five members form a group. The coordinator waits 10 s for the assignment, or 30 s if "
            "the members say so. An assignor that takes 8 s is for comparison."
        ),
        rule=(
            "With an assignor that takes 12 s: refuted if the group forms with the coordinator's "
            "timeout. Reproduced if it forms with that of the members only. Depends if it never "
            "forms."
        ),
        figures=figures,
        verdict=judgement.verdict,
        explanation=judgement.reason,
    )


# The choice


class Proportion(msgspec.Struct, frozen=True, kw_only=True):
    """The number of independent trials with an outcome, and the number of all."""

    count: int
    trials: int

    @property
    def share(self) -> float:
        """The share of the trials."""
        return self.count / self.trials

    def interval(self) -> tuple[float, float]:
        """Return the confidence interval of 95% (Wilson, 1927)."""
        z2 = _NORMAL_QUANTILE**2
        centre = self.count + z2 / 2
        width = _NORMAL_QUANTILE * math.sqrt(
            self.count * (self.trials - self.count) / self.trials + z2 / 4
        )
        return (centre - width) / (self.trials + z2), (centre + width) / (self.trials + z2)

    def is_below(self, other: Proportion) -> bool:
        """Return True if the confidence intervals do not overlap, and this one is the lower."""
        return self.interval()[1] < other.interval()[0]

    def __str__(self) -> str:
        low, high = self.interval()
        return f"{self.share:.0%} ({low:.0%} to {high:.0%})"


class SynchronizerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one way to choose the synchronizer.

    Attributes:
        failed: The groups in which the synchronizer had crashed before.
        upgraded: The rebalances of an upgrade with an upgraded synchronizer.
    """

    failed: Proportion
    upgraded: Proportion


def judge_synchronizer_choices(
    figures: Mapping[SynchronizerChoice, SynchronizerFigures],
) -> Judgement:
    """Return the verdict for the document's reasons for each choice.

    The last to join fails less often than a random member; the newest is upgraded more often, but
    not always; the one with the highest version is always upgraded.
    """
    random = figures[SynchronizerChoice.RANDOM]
    newest = figures[SynchronizerChoice.NEWEST].upgraded
    highest = figures[SynchronizerChoice.HIGHEST_VERSION].upgraded
    promises = {
        "the last member to join fails less often than a random one": (
            figures[SynchronizerChoice.LAST_TO_JOIN].failed.is_below(random.failed)
        ),
        "the newest member is upgraded more often than a random one": (
            random.upgraded.is_below(newest)
        ),
        "the newest member is not always upgraded": newest.count < newest.trials,
        "the member with the highest version is always upgraded": highest.count == highest.trials,
    }
    failing = [text for text, holds in promises.items() if not holds]
    holding = [text for text, holds in promises.items() if holds]
    if not failing:
        verdict = ClaimVerdict.REPRODUCED
    else:
        verdict = ClaimVerdict.DEPENDS if holding else ClaimVerdict.REFUTED
    sentences = [
        f"{opening}: {'; '.join(texts)}."
        for opening, texts in (
            ("These statements hold", holding),
            ("These statements do not hold", failing),
        )
        if texts
    ]
    return Judgement(verdict=verdict, reason=" ".join(sentences))


class _VersionedSingleAssignor(SingleAssignor):
    """Members whose name begins with "new" have a higher version."""

    def metadata_version(self, template: MemberTemplate) -> int:
        return int(template.name.startswith("new"))


def chooses_failed_member(choice: SynchronizerChoice, seed: int) -> bool:
    """Start 10 members one after the other, crash one, and return True if it is chosen."""
    world = new_world(SingleAssignor(*SETTINGS, choice=choice), [], _ONE_TOPIC, seed=seed)
    rng = world.new_rng("crash")
    crash_at = rng.randrange(1, 11)  # after this many members
    for number, name in enumerate(member_names(10), 1):
        world.start_member(MemberTemplate(name=name, topics=frozenset({"t"})))
        world.run(250)
        if number == crash_at:
            rng.choice(world.live_members).crash(silently=True)
    world.run(5_000)
    return not any(each.is_reading for each in world.members)


def upgraded_synchronizers(choice: SynchronizerChoice, seed: int) -> int:
    """Restart members with a higher version; return after how many restarts such a member assigns.

    An unchanged member leaves and joins again before each restart but the first, so that the newest
    member is not always upgraded.
    """
    world = new_world(
        _VersionedSingleAssignor(*SETTINGS, choice=choice),
        member_names(_UPGRADED_MEMBERS, "old"),
        _ONE_TOPIC,
        seed=seed,
    )
    rng = world.new_rng("upgrade")
    world.run(10_000)
    upgraded = 0
    for number in range(_UPGRADED_MEMBERS - 1):  # with the last one, all are upgraded
        old = [
            each for each in world.live_members if each.is_reading and each.name.startswith("old")
        ]
        world.stop_member(old[0])
        world.run(5_000)
        world.start_member(MemberTemplate(name=f"new-{number}", topics=frozenset({"t"})))
        world.run(10_000)
        if len(old) > 1 and rng.random() < 0.25:  # a restart without an upgrade
            world.stop_member(old[1])
            world.run(5_000)
            world.start_member(MemberTemplate(name=f"old-again-{number}", topics=frozenset({"t"})))
            world.run(10_000)
        assert world.coordinator is not None, "no fault stops the coordinator"
        coordinator: Any = world.coordinator.machine
        chosen = coordinator.groups[GROUP_ID].synchronizer
        upgraded += any(
            each.name.startswith("new")
            for each in world.live_members
            if getattr(each.machine, "member_id", None) == chosen
        )
    return upgraded


def measure_synchronizer_choices(cpu_clock_ns: Callable[[], int]) -> Claim:
    """The four ways to choose the synchronizer."""
    measured = {
        choice: SynchronizerFigures(
            failed=Proportion(
                count=sum(chooses_failed_member(choice, seed) for seed in _WORLDS),
                trials=len(_WORLDS),
            ),
            upgraded=Proportion(
                count=sum(upgraded_synchronizers(choice, seed) for seed in _UPGRADES),
                trials=len(_UPGRADES) * (_UPGRADED_MEMBERS - 1),
            ),
        )
        for choice in SynchronizerChoice
    }
    figures = []
    for choice, each in measured.items():
        figures += [
            (f"{choice}: groups whose synchronizer had crashed", str(each.failed)),
            (f"{choice}: rebalances of an upgrade by an upgraded member", str(each.upgraded)),
        ]
    judgement = judge_synchronizer_choices(measured)
    return Claim(
        title="The four ways to choose the synchronizer",
        statement=(
            "“… choosing the last member to join the group reduces the chance that a failed "
            "member will be chosen. … Another strategy would be to choose the newest member of "
            "the group, since it is the one most likely to have been upgraded, though this "
            "couldn't be depended on in practice. … The simplest solution is to choose a member "
            "randomly.”"
        ),
        setup=(
            f"{len(_WORLDS)} groups of 10 members, which start one after the other; a random one "
            f"crashes during the join. {len(_UPGRADES)} upgrades of {_UPGRADED_MEMBERS} members, "
            "one after the other; after a quarter of the restarts a member also restarts without "
            "an upgrade. The parentheses have confidence intervals of 95%, as if rebalances of one "
            "upgrade were independent. If all versions are equal, the choice by version takes the "
            "member that joined first."
        ),
        rule=(
            "Four reasons: the last member to join fails less often than a random one; the newest "
            "is upgraded more often than a random one, but not always; the one with the highest "
            "version is always upgraded. “More often” and “less often” need intervals that do not "
            "overlap. Reproduced if all hold, refuted if none does."
        ),
        figures=figures,
        verdict=judgement.verdict,
        explanation=judgement.reason,
    )
