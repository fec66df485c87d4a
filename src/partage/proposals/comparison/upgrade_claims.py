"""The claims about upgrades and changed topics in the accepted design.

The functions are as in `size_claims`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from partage.assignors import CooperativeSticky, RoundRobin
from partage.assignors.base import Assignor
from partage.proposals.comparison.claim import (
    Claim,
    ClaimVerdict,
    Judgement,
    combine,
    join_words,
)
from partage.proposals.comparison.claim_worlds import (
    GROUP_ID,
    SETTINGS,
    member_names,
    new_world,
)
from partage.proposals.designs.catalog import find_design
from partage.proposals.designs.two_phase import TwoPhaseEager
from partage.proposals.simulation.design import MemberTemplate
from partage.proposals.simulation.world import WorldOptions

# Two rolling bounces


class UpgradeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a rolling upgrade from the eager to the cooperative protocol.

    Attributes:
        restarts: Members that were restarted.
        rejected: Members that the coordinator rejected.
        double_read_s: Time with two readers, summed over all partitions.
        unread_partition_s: Time without a reader, summed over all partitions.
        is_complete: True if the group has the cooperative protocol in the end, and all members
            list nothing else.
    """

    restarts: int
    rejected: int
    double_read_s: float
    unread_partition_s: float
    is_complete: bool

    @property
    def is_safe(self) -> bool:
        """True if no member was rejected and no partition had two readers."""
        return not self.rejected and not self.double_read_s

    @property
    def is_successful(self) -> bool:
        """True if the upgrade is complete and was safe."""
        return self.is_safe and self.is_complete

    def __str__(self) -> str:
        if self.is_successful:
            return "succeeds"
        faults = []
        if self.rejected:
            faults.append(f"is rejected at restart {self.restarts}")
        if self.double_read_s:
            faults.append(f"has two readers for {self.double_read_s:.1f} partition-seconds")
        if not self.is_complete:
            faults.append("does not reach the cooperative protocol")
        return join_words(faults)


class _Upgraded(TwoPhaseEager):
    """The accepted design with the assignors that the name of a member begins with."""

    ASSIGNORS: ClassVar[dict[str, tuple[type[Assignor], ...]]] = {
        "old": (RoundRobin,),
        "both": (RoundRobin, CooperativeSticky),
        "new": (CooperativeSticky,),
    }

    def assignors(self, template: MemberTemplate) -> Sequence[Assignor]:
        return [each() for each in self.ASSIGNORS[template.name.partition("-")[0]]]


#: The upgrades that are compared: the assignors after each bounce.
BOUNCES: Final[Mapping[str, tuple[str, ...]]] = {
    "one bounce to the new assignor": ("new",),
    "one bounce that adds the new assignor": ("both",),
    "two bounces": ("both", "new"),
}


def judge_two_bounces(groups: Sequence[Mapping[str, UpgradeResult]]) -> Judgement:
    """Return the verdict for the upgrades of some groups.

    Args:
        groups: For each group, the result of each upgrade of `BOUNCES`.
    """
    verdicts = []
    for results in groups:
        *single, two = (results[name] for name in BOUNCES)
        needs_two = two.is_successful and not any(each.is_successful for each in single)
        verdicts.append(ClaimVerdict.REPRODUCED if needs_two else ClaimVerdict.REFUTED)
    texts = [
        f"{name}: {join_words(dict.fromkeys(str(results[name]) for results in groups))}"
        for name in BOUNCES
    ]
    return Judgement(
        verdict=combine(verdicts), reason=f"In {len(groups)} groups, {'; '.join(texts)}."
    )


def upgrade(bounces: Sequence[str], members: int = 4, seed: int = 1) -> UpgradeResult:
    """Upgrade a group: each bounce restarts all members with other assignors.

    Args:
        bounces: The assignors after each bounce: keys of `_Upgraded.ASSIGNORS`.
        members: The size of the group.
        seed: The seed of the world.
    """
    world = new_world(
        _Upgraded(*SETTINGS),
        member_names(members, "old"),
        WorldOptions(topics={"t": 4 * members}),
        seed=seed,
    )
    world.run(30_000)
    world.readers.take(world.clock.now_ms)
    running = list(world.members)
    restarts = rejected = 0
    for prefix in bounces:
        for number, process in enumerate(running):
            world.stop_member(process)
            world.run(1_000)
            template = MemberTemplate(name=f"{prefix}-{number}", topics=frozenset({"t"}))
            running[number] = world.start_member(template)
            restarts += 1
            world.run(15_000)
            rejected += running[number].error is not None
            if rejected:
                break  # an operator stops here
    assert world.coordinator is not None, "no fault stops the coordinator"
    coordinator: Any = world.coordinator.machine
    group = coordinator.shard.groups[GROUP_ID]
    return UpgradeResult(
        restarts=restarts,
        rejected=rejected,
        double_read_s=world.readers.double_read_ms / 1000,
        unread_partition_s=world.readers.take(world.clock.now_ms).unread_partition_ms / 1000,
        is_complete=(
            group.protocol == CooperativeSticky().name
            and set(group.protocol_counts) == {CooperativeSticky().name}
        ),
    )


def measure_two_bounces(cpu_clock_ns: Callable[[], int]) -> Claim:
    """The rolling bounces from the eager to the cooperative protocol."""
    sizes = ((4, 1), (4, 2), (7, 3))
    groups = [
        {name: upgrade(bounces, members, seed) for name, bounces in BOUNCES.items()}
        for members, seed in sizes
    ]
    figures = []
    for name in BOUNCES:
        results = [group[name] for group in groups]
        figures += [
            (f"{name}: restarts", _listed(results, lambda each: str(each.restarts))),
            (f"{name}: rejected members", _listed(results, lambda each: str(each.rejected))),
            (
                f"{name}: partition-seconds without a reader",
                _listed(results, lambda each: f"{each.unread_partition_s:.1f}"),
            ),
            (
                f"{name}: partition-seconds with two readers",
                _listed(results, lambda each: f"{each.double_read_s:.1f}"),
            ),
            (
                f"{name}: the group is cooperative in the end",
                _listed(results, lambda each: "yes" if each.is_complete else "no"),
            ),
        ]
    judgement = judge_two_bounces(groups)
    return Claim(
        title="Two rolling bounces to the cooperative protocol",
        statement=(
            "“… we'd need two rolling bounces instead of one rolling bounce to complete the "
            "upgrade …”"
        ),
        setup=(
            "Groups of 4, 4 and 7 members with different seeds; each figure lists them. A bounce "
            "restarts all members, one every 16 s, and ends when a member is rejected. The first "
            "of two bounces adds the new assignor, the second one removes the old one."
        ),
        rule=(
            "An upgrade succeeds if the coordinator rejects no member, no partition has two "
            "readers, and in the end the group has the cooperative protocol and each member lists "
            "nothing else. Reproduced if two bounces succeed, and neither of the single ones does."
        ),
        figures=figures,
        verdict=judgement.verdict,
        explanation=judgement.reason,
    )


def _listed(results: Sequence[UpgradeResult], text: Callable[[UpgradeResult], str]) -> str:
    return ", ".join(map(text, results))


# A resync


class ResyncResult(msgspec.Struct, frozen=True, kw_only=True):
    """The rebalance after a topic got partitions, with a rejoin and with a resync.

    Attributes:
        name: The topics of the group.
        rejoin_bytes: The bytes of JoinGroup and SyncGroup with a rejoin.
        resync_bytes: Those with a resync.
        double_read_s: Time with two readers with a resync, summed over all partitions.
    """

    name: str
    rejoin_bytes: int
    resync_bytes: int
    double_read_s: float


def judge_resync(results: Sequence[ResyncResult]) -> Judgement:
    """Return the verdict for a resync instead of a rejoin."""
    verdicts, texts = [], []
    for each in results:
        if each.resync_bytes >= each.rejoin_bytes:
            verdicts.append(ClaimVerdict.REFUTED)
        else:
            verdicts.append(ClaimVerdict.DEPENDS if each.double_read_s else ClaimVerdict.REPRODUCED)
        texts.append(
            f"with {each.name}, it takes {each.resync_bytes / each.rejoin_bytes:.1%} of the bytes "
            f"of a rejoin, and two members read partitions for {each.double_read_s:.1f} "
            "partition-seconds"
        )
    return Judgement(verdict=combine(verdicts), reason=f"A resync: {'; '.join(texts)}.")


def measure_resync(cpu_clock_ns: Callable[[], int]) -> Claim:
    """A resync against a rejoin when topics get partitions."""
    members = 20
    sent: dict[tuple[str, str], int] = {}
    double_read: dict[tuple[str, str], float] = {}
    figures = []
    worlds = {"1 topic": {"t": 2 * members}, "2 topics": {"t": members, "u": members}}
    for design in ("two-phase-eager", "two-phase-resync"):
        for name, topics in worlds.items():
            options = WorldOptions(topics=dict(topics))
            world = new_world(find_design(design)(*SETTINGS), member_names(members), options, kb=10)
            world.run(60_000)
            world.readers.take(world.clock.now_ms)
            world.traffic.take()
            world.add_partitions("t", 3)
            world.run(60_000)
            traffic = world.traffic.take()
            sent[design, name] = sum(
                size
                for message, size in traffic.bytes.items()
                if message.startswith(("Join", "Sync"))
            )
            double_read[design, name] = world.readers.double_read_ms / 1000
            unread_s = world.readers.take(world.clock.now_ms).unread_partition_ms / 1000
            joins = traffic.messages["JoinGroupRequest"]
            figures += [
                (f"{design}, {name}: JoinGroup requests", str(joins)),
                (f"{design}, {name}: bytes of JoinGroup and SyncGroup", f"{sent[design, name]:,}"),
                (f"{design}, {name}: partition-seconds without a reader", f"{unread_s:.1f}"),
                (
                    f"{design}, {name}: partition-seconds with two readers",
                    f"{double_read[design, name]:.1f}",
                ),
            ]
    judgement = judge_resync(
        [
            ResyncResult(
                name=name,
                rejoin_bytes=sent["two-phase-eager", name],
                resync_bytes=sent["two-phase-resync", name],
                double_read_s=double_read["two-phase-resync", name],
            )
            for name in worlds
        ]
    )
    return Claim(
        title="Resync instead of rejoin when topics change",
        statement=(
            "“Topic metadata changes which have no impact on subscriptions cause resync. The "
            "leader computes the new assignment and sends SyncGroup.”"
        ),
        setup=(
            f"A topic of {members} members with 10 KB of metadata each gets 3 partitions. A resync "
            "has no phase that waits until all members have stopped: the earlier reader of a "
            "partition learns of its move with its next heartbeat."
        ),
        rule=(
            "Refuted if a resync does not take fewer bytes than a rejoin. Reproduced if it does "
            "and no partition has two readers. Otherwise, or if the groups differ, it depends."
        ),
        figures=figures,
        verdict=judgement.verdict,
        explanation=judgement.reason,
    )


# The largest partition count

_COUNT_SEEDS: Final = range(1, 6)
_COUNT_STALE_MS: Final = 60_000
_COUNT_LIMIT_MS: Final = 150_000


class CountResult(msgspec.Struct, frozen=True, kw_only=True):
    """One world after changes of a topic about which members have different metadata.

    Attributes:
        added_s: Time until all added partitions were read; at most 150 s.
        joins: Joins of each member in 150 s after the addition.
        deleted_s: Partition-seconds in which members had deleted partitions, in 150 s after the
            topic was created again with fewer.
    """

    added_s: float
    joins: float
    deleted_s: float


def judge_largest_count(leader: Sequence[CountResult], largest: Sequence[CountResult]) -> Judgement:
    """Return the verdict for the largest reported count.

    Args:
        leader: The results with the leader's count.
        largest: Those with the largest count, for the same seeds.
    """
    pairs = list(zip(leader, largest, strict=True))
    sooner = sum(other.added_s < one.added_s for one, other in pairs)
    longer = sum(other.deleted_s > one.deleted_s for one, other in pairs)
    means = [
        sum(getattr(each, name) for each in results) / len(results)
        for name in ("added_s", "deleted_s")
        for results in (leader, largest)
    ]
    reason = (
        f"Added partitions were read sooner in {sooner} of {len(pairs)} worlds (mean "
        f"{means[1]:.1f} s instead of {means[0]:.1f} s). Members had deleted partitions for longer "
        f"in {longer} of {len(pairs)} worlds (mean {means[3]:.0f} partition-seconds instead of "
        f"{means[2]:.0f})."
    )
    if 2 * sooner <= len(pairs):
        verdict = ClaimVerdict.REFUTED
    elif sooner < len(pairs) or longer:
        verdict = ClaimVerdict.DEPENDS
    else:
        verdict = ClaimVerdict.REPRODUCED
    return Judgement(verdict=verdict, reason=reason)


def changed_counts(design: str, seed: int) -> CountResult:
    """Run a group whose topic gets partitions, and one whose topic is created again with fewer."""
    options = WorldOptions(topics={"t": 20}, stale_metadata_ms=_COUNT_STALE_MS)
    world = new_world(find_design(design)(*SETTINGS), member_names(10), options, seed=seed)
    world.run(60_000)
    world.traffic.take()
    begin_ms = world.clock.now_ms
    world.add_partitions("t", 5)
    while world.readers.unread and world.clock.now_ms < begin_ms + _COUNT_LIMIT_MS:
        world.run(500)
    added_ms = world.clock.now_ms - begin_ms
    world.run(begin_ms + _COUNT_LIMIT_MS - world.clock.now_ms)
    joins = world.traffic.take().messages["JoinGroupRequest"]
    world = new_world(find_design(design)(*SETTINGS), member_names(10), options, seed=seed)
    world.run(60_000)
    world.recreate_topic("t", 10)
    world.run(_COUNT_LIMIT_MS)
    return CountResult(
        added_s=added_ms / 1000,
        joins=joins / 10,
        deleted_s=world.readers.deleted_read_ms(world.clock.now_ms) / 1000,
    )


def measure_largest_count(cpu_clock_ns: Callable[[], int]) -> Claim:
    """The largest reported partition count against that of the leader."""
    results = {
        design: [changed_counts(design, seed) for seed in _COUNT_SEEDS]
        for design in ("two-phase-eager", "two-phase-largest-count")
    }
    figures = []
    for design, worlds in results.items():
        figures += [
            (
                f"{design}: seconds until added partitions were read",
                ", ".join(f"{each.added_s:.1f}" for each in worlds),
            ),
            (
                f"{design}: joins of each member in 150 s after the addition",
                ", ".join(f"{each.joins:.1f}" for each in worlds),
            ),
            (
                f"{design}: partition-seconds of members with deleted partitions",
                ", ".join(f"{each.deleted_s:.0f}" for each in worlds),
            ),
        ]
    judgement = judge_largest_count(*results.values())
    return Claim(
        title="The largest partition count that any consumer reports",
        statement=(
            "“The basic idea is to have the assignment algorithm use the largest number of "
            "partitions for each topic reported by any of the consumers.” A reviewer objected that "
            "“if one metadata contains some already-not-exist partitions due to stale metadata …, "
            "then some consumers will try to fetch those not-assigned partitions”."
        ),
        setup=(
            f"Ten members, {len(_COUNT_SEEDS)} worlds with different seeds; each figure lists "
            "them. A topic of 20 partitions gets 5 more, or is created again with 10. For 60 s "
            "every other broker serves the old count. Members refresh their metadata every 30 s. "
            "They do not fetch from deleted partitions, so no error of a fetch tells them sooner."
        ),
        rule=(
            "Refuted if added partitions are not read sooner than with the leader's count in most "
            "worlds. Reproduced if they are in all worlds, and members have deleted partitions for "
            "longer in none. Otherwise it depends."
        ),
        figures=figures,
        verdict=judgement.verdict,
        explanation=judgement.reason,
    )
