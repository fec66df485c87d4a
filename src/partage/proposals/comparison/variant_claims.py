"""The claims of the documents about variants of their designs, measured.

The functions are as in `claims`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import msgspec

from partage.assignors import CooperativeSticky, RoundRobin
from partage.assignors.base import Assignor
from partage.assignors.group_view import Member
from partage.proposals.assignment import assign_partitions
from partage.proposals.comparison.cell import PhaseResult, Workload, run_cell
from partage.proposals.comparison.claim import Claim, ClaimVerdict
from partage.proposals.designs.catalog import find_design
from partage.proposals.designs.single_assignor import SingleAssignor
from partage.proposals.designs.two_phase import TwoPhaseEager
from partage.proposals.join_group.settings import CoordinatorSettings, MemberSettings
from partage.proposals.simulation.design import Design, MemberTemplate
from partage.proposals.simulation.world import World, WorldOptions
from partage.proposals.single_assignor.coordinator import SynchronizerChoice
from partage.proposals.two_phase.reported_counts import largest_counts

_GROUP_ID: Final = "claimed"
_SETTINGS: Final = (CoordinatorSettings(), MemberSettings(group_id=_GROUP_ID))


def _new_world(
    design: Design, members: Sequence[str], options: WorldOptions, *, seed: int = 1, kb: int = 0
) -> World:
    """Return a world with members that subscribe to all topics."""
    world = World(design, options, seed)
    topics = frozenset(options.topics)
    for name in members:
        world.start_member(MemberTemplate(name=name, topics=topics, metadata_bytes=kb * 1000))
    return world


def _names(count: int, prefix: str = "member") -> list[str]:
    return [f"{prefix}-{number:03}" for number in range(count)]


# Two rolling bounces


class UpgradeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a rolling upgrade from the eager to the cooperative protocol.

    Attributes:
        restarts: Members that were restarted.
        rejected: Members that the coordinator rejected.
        double_read_s: Time with two readers, summed over all partitions.
        unread_partition_s: Time without a reader, summed over all partitions.
    """

    restarts: int
    rejected: int
    double_read_s: float
    unread_partition_s: float

    @property
    def is_safe(self) -> bool:
        """True if no member was rejected and no partition had two readers."""
        return not self.rejected and not self.double_read_s


class _Upgraded(TwoPhaseEager):
    """The accepted design with the assignors that the name of a member begins with."""

    ASSIGNORS: ClassVar[dict[str, tuple[type[Assignor], ...]]] = {
        "old": (RoundRobin,),
        "both": (RoundRobin, CooperativeSticky),
        "new": (CooperativeSticky,),
    }

    def assignors(self, template: MemberTemplate) -> Sequence[Assignor]:
        return [each() for each in self.ASSIGNORS[template.name.partition("-")[0]]]


def judge_two_bounces(one: UpgradeResult, two: UpgradeResult) -> ClaimVerdict:
    """Return the verdict for an upgrade with one rolling bounce, and for one with two."""
    if not two.is_safe:
        return ClaimVerdict.REFUTED
    return ClaimVerdict.REFUTED if one.is_safe else ClaimVerdict.REPRODUCED


def upgrade(bounces: Sequence[str], members: int = 4) -> UpgradeResult:
    """Upgrade a group: each bounce restarts all members with other assignors.

    Args:
        bounces: The assignors after each bounce: keys of `_Upgraded.ASSIGNORS`.
        members: The size of the group.
    """
    world = _new_world(
        _Upgraded(*_SETTINGS), _names(members, "old"), WorldOptions(topics={"t": 4 * members})
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
    return UpgradeResult(
        restarts=restarts,
        rejected=rejected,
        double_read_s=world.readers.double_read_ms / 1000,
        unread_partition_s=world.readers.take(world.clock.now_ms).unread_partition_ms / 1000,
    )


def measure_two_bounces(cpu_clock_ns: Callable[[], int]) -> Claim:
    """The rolling bounces from the eager to the cooperative protocol."""
    one, two = upgrade(["new"]), upgrade(["both", "new"])
    return Claim(
        title="Two rolling bounces to the cooperative protocol",
        statement=(
            "“… we'd need two rolling bounces instead of one rolling bounce to complete the "
            "upgrade …”"
        ),
        figures=[
            ("one bounce: restarts until a member was rejected", str(one.restarts)),
            ("one bounce: members that the coordinator rejected", str(one.rejected)),
            ("two bounces: restarts", str(two.restarts)),
            ("two bounces: members that the coordinator rejected", str(two.rejected)),
            ("two bounces: partition-seconds without a reader", f"{two.unread_partition_s:.1f}"),
            ("two bounces: partition-seconds with two readers", f"{two.double_read_s:.1f}"),
        ],
        verdict=judge_two_bounces(one, two),
        explanation=(
            "A member that has only the new assignor shares none with the others, and the "
            "coordinator rejects it. The first bounce adds the new assignor, the second one "
            "removes the old one."
        ),
    )


# Topic metadata


def judge_resync(
    rejoin_bytes: int, resync_bytes: int, double_read_s: Sequence[float]
) -> ClaimVerdict:
    """Return the verdict for a resync instead of a rejoin.

    Args:
        rejoin_bytes: The bytes of the rebalance after a change of metadata.
        resync_bytes: Those of the resync.
        double_read_s: The time with two readers in each measured resync.
    """
    if resync_bytes >= rejoin_bytes:
        return ClaimVerdict.REFUTED
    return ClaimVerdict.DEPENDS if any(double_read_s) else ClaimVerdict.REPRODUCED


def measure_resync(cpu_clock_ns: Callable[[], int]) -> Claim:
    """A resync against a rejoin when topics get partitions."""
    members = 20
    sent: dict[str, list[int]] = {}
    double_read: dict[str, list[float]] = {}
    figures = []
    for design in ("two-phase-eager", "two-phase-resync"):
        for topics in ({"t": 2 * members}, {"t": members, "u": members}):
            options = WorldOptions(topics=dict(topics))
            world = _new_world(find_design(design)(*_SETTINGS), _names(members), options, kb=10)
            world.run(60_000)
            world.readers.take(world.clock.now_ms)
            world.traffic.take()
            world.add_partitions("t", 3)
            world.run(60_000)
            traffic = world.traffic.take()
            sizes = traffic.bytes
            size = sum(n for name, n in sizes.items() if name.startswith(("Join", "Sync")))
            sent.setdefault(design, []).append(size)
            seconds = world.readers.double_read_ms / 1000
            double_read.setdefault(design, []).append(seconds)
            unread_s = world.readers.take(world.clock.now_ms).unread_partition_ms / 1000
            name = f"{design}, {len(topics)} topic{'s' * (len(topics) > 1)}"
            figures += [
                (f"{name}: JoinGroup requests", str(traffic.messages["JoinGroupRequest"])),
                (f"{name}: bytes of JoinGroup and SyncGroup", f"{size:,}"),
                (f"{name}: partition-seconds without a reader", f"{unread_s:.1f}"),
                (f"{name}: partition-seconds with two readers", f"{seconds:.1f}"),
            ]
    return Claim(
        title="Resync instead of rejoin when topics change",
        statement=(
            "“Topic metadata changes which have no impact on subscriptions cause resync. The "
            "leader computes the new assignment and sends SyncGroup.”"
        ),
        figures=figures,
        verdict=judge_resync(
            sum(sent["two-phase-eager"]),
            sum(sent["two-phase-resync"]),
            double_read["two-phase-resync"],
        ),
        explanation=(
            f"A topic of {members} members gets 3 partitions. A resync sends no metadata, and "
            "nothing else stops. If the new assignment moves partitions of another topic, two "
            "members read them until the next heartbeat of the earlier one: no phase waits until "
            "all members have stopped."
        ),
    )


def judge_largest_count(leader_s: float, largest_s: float, missing_partitions: int) -> ClaimVerdict:
    """Return the verdict for the largest reported count.

    Args:
        leader_s: Time until new partitions are read, with the leader's count.
        largest_s: The same with the largest count.
        missing_partitions: Assigned partitions that do not exist, if a topic has become smaller.
    """
    if largest_s >= leader_s:
        return ClaimVerdict.REFUTED
    return ClaimVerdict.DEPENDS if missing_partitions else ClaimVerdict.REPRODUCED


def missing_partitions(existing: int, stale: int) -> int:
    """Return how many partitions that do not exist are assigned under the largest count.

    Args:
        existing: The partitions of the topic.
        stale: The count that a member with stale metadata reports.
    """
    counts = largest_counts([{"t": existing}, {"t": stale}])
    members = [Member(member_id=name, topics=("t",)) for name in _names(4)]
    shares = assign_partitions(RoundRobin(), members, counts)
    return sum(partition.partition >= existing for share in shares.values() for partition in share)


def measure_largest_count(cpu_clock_ns: Callable[[], int]) -> Claim:
    """The largest reported partition count against that of the leader."""
    figures: list[tuple[str, str]] = []
    seconds: dict[str, float] = {}
    seeds = range(1, 6)
    for design in ("two-phase-eager", "two-phase-largest-count"):
        total_ms = joins = 0
        for seed in seeds:
            options = WorldOptions(topics={"t": 20}, stale_metadata_ms=60_000)
            world = _new_world(find_design(design)(*_SETTINGS), _names(10), options, seed=seed)
            world.run(60_000)
            world.traffic.take()
            begin_ms = world.clock.now_ms
            world.add_partitions("t", 5)
            while world.readers.unread and world.clock.now_ms < begin_ms + 150_000:
                world.run(500)
            total_ms += world.clock.now_ms - begin_ms
            world.run(begin_ms + 150_000 - world.clock.now_ms)
            joins += world.traffic.take().messages["JoinGroupRequest"]
        seconds[design] = total_ms / 1000 / len(seeds)
        figures += [
            (f"{design}: time until the new partitions were read", f"{seconds[design]:.1f} s"),
            (f"{design}: joins of each member in 150 s", f"{joins / 10 / len(seeds):.1f}"),
        ]
    missing = missing_partitions(10, 20)
    figures.append(
        ("assigned partitions that do not exist, if one member knows 20 of 10", str(missing))
    )
    return Claim(
        title="The largest partition count that any consumer reports",
        statement=(
            "“The basic idea is to have the assignment algorithm use the largest number of "
            "partitions for each topic reported by any of the consumers.”"
        ),
        figures=figures,
        verdict=judge_largest_count(
            seconds["two-phase-eager"], seconds["two-phase-largest-count"], missing
        ),
        explanation=(
            "Half of the brokers served the old count for 60 s; the mean of 5 worlds. One member "
            "with current metadata is enough, but each member that sees another count rejoins. "
            "After a topic was created again with fewer partitions, one stale member makes the "
            "group assign partitions that do not exist."
        ),
    )


# Metadata of many members


def judge_compression(plain: int, members: int, group: int) -> ClaimVerdict:
    """Return the verdict for the bytes without compression, with compressed members, and with a
    compressed group.
    """
    if members >= plain / 2 and group >= plain / 2:
        return ClaimVerdict.REFUTED
    is_effective = members < plain / 2 and group < plain / 10
    return ClaimVerdict.REPRODUCED if is_effective else ClaimVerdict.DEPENDS


def measure_compression(cpu_clock_ns: Callable[[], int]) -> Claim:
    """Compressed metadata of 50 members that subscribe to the same 200 topics."""
    designs = (
        "multi-assignor",
        "multi-assignor-compressed",
        "multi-assignor-compressed-group",
        "single-assignor",
    )
    sent = {
        name: run_cell(Workload(design=name, members=50, topics=200, partitions=200, phases=()))
        .phases[0]
        .bytes
        for name in designs
    }
    plain, members, group, _ = sent.values()
    return Claim(
        title="Compressed metadata",
        statement=(
            "“Since most subscription sets in a group will probably have considerable overlap "
            "(even matching exactly in most cases), this should be very effective …”"
        ),
        figures=[(f"{name}: bytes to form the group", f"{n:,}") for name, n in sent.items()],
        verdict=judge_compression(plain, members, group),
        explanation="50 members subscribe to the same 200 topics; zlib compresses.",
    )


# The first design


def judge_closing(stopping: PhaseResult, closing: PhaseResult) -> ClaimVerdict:
    """Return the verdict for closed connections instead of StopFetcher."""
    if not closing.is_stable:
        return ClaimVerdict.REFUTED
    costs_more = (
        closing.duplicate_records > stopping.duplicate_records
        or closing.unread_partition_s > 2 * stopping.unread_partition_s
    )
    return ClaimVerdict.DEPENDS if costs_more else ClaimVerdict.REPRODUCED


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
    return Claim(
        title="Closed connections against StopFetcher",
        statement=(
            "“Rebalance is triggered by killing the socket connection to the remaining consumers "
            "in the group. … Once all alive consumers re-register with the co-ordinator, it "
            "communicates the new partition ownership to each of the consumers in the "
            "RegisterConsumerResponse, thereby completing the rebalance operation.”"
        ),
        figures=figures,
        verdict=judge_closing(*results),
        explanation=(
            "One consumer joins a group of 50. A closed connection loses the offsets since the "
            "last ping; the response to StopFetcher has them."
        ),
    )


# The synchronizer


def judge_synchronize_timeout(is_formed_without: bool, is_formed_with: bool) -> ClaimVerdict:
    """Return the verdict for a group that forms, or not, without and with the timeout."""
    if is_formed_without:
        return ClaimVerdict.REFUTED
    return ClaimVerdict.REPRODUCED if is_formed_with else ClaimVerdict.DEPENDS


def formation_s(*, sends_timeout: bool, assign_ms: int, within_s: int = 300) -> float | None:
    """Return when a group forms, in s, if its assignor takes ``assign_ms``; None if it does not.

    Members that send a timeout allow 30 s; the coordinator's default is 10 s.
    """
    settings = msgspec.structs.replace(_SETTINGS[1], synchronize_timeout_ms=30_000)
    design = SingleAssignor(
        _SETTINGS[0], settings, sends_timeout=sends_timeout, assign_ms=assign_ms
    )
    world = _new_world(design, _names(5), WorldOptions(topics={"t": 10}))
    begin_ms = world.clock.now_ms
    while world.readers.unread:
        if world.clock.now_ms - begin_ms >= within_s * 1000:
            return None
        world.run(100)
    return (world.clock.now_ms - begin_ms) / 1000


def measure_synchronize_timeout(cpu_clock_ns: Callable[[], int]) -> Claim:
    """The race between the synchronizer and the coordinator's timeout."""
    figures, formed = [], []
    for sends_timeout in (False, True):
        seconds = formation_s(sends_timeout=sends_timeout, assign_ms=12_000)
        formed.append(seconds is not None)
        name = "members send synchronize_timeout" if sends_timeout else "coordinator's timeout"
        figures.append(
            (f"{name}: time to form", "not in 300 s" if seconds is None else f"{seconds:.1f} s")
        )
    return Claim(
        title="The race that synchronize_timeout removes",
        statement=(
            "“In the worst case, if the timeout is actually lower than the synchronization time, "
            "then the group will never be created. One possible way to address this issue is to "
            "add a synchronize_timeout to the join group request …”"
        ),
        figures=figures,
        verdict=judge_synchronize_timeout(*formed),
        explanation=(
            "The assignor takes 12 s. The coordinator waits 10 s by itself, or 30 s as the members "
            "say."
        ),
    )


class SynchronizerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one way to choose the synchronizer.

    Attributes:
        failed: Share of the groups in which the synchronizer had crashed before.
        upgraded: Share of the rebalances of an upgrade with an upgraded synchronizer.
    """

    failed: float
    upgraded: float


def judge_synchronizer_choices(
    figures: dict[SynchronizerChoice, SynchronizerFigures],
) -> ClaimVerdict:
    """Return the verdict for the document's reasons for each choice.

    The last to join fails less often than a random member; the newest is upgraded more often; the
    one with the highest version is always upgraded.
    """
    random = figures[SynchronizerChoice.RANDOM]
    holds = (
        figures[SynchronizerChoice.LAST_TO_JOIN].failed < random.failed,
        figures[SynchronizerChoice.NEWEST].upgraded > random.upgraded,
        figures[SynchronizerChoice.HIGHEST_VERSION].upgraded == 1,
    )
    if all(holds):
        return ClaimVerdict.REPRODUCED
    return ClaimVerdict.DEPENDS if any(holds) else ClaimVerdict.REFUTED


class _VersionedSingleAssignor(SingleAssignor):
    """Members whose name begins with "new" have a higher version."""

    def metadata_version(self, template: MemberTemplate) -> int:
        return int(template.name.startswith("new"))


def chooses_failed_member(choice: SynchronizerChoice, seed: int) -> bool:
    """Start 10 members one after the other, crash one, and return True if it is chosen."""
    world = _new_world(SingleAssignor(*_SETTINGS, choice=choice), [], _ONE_TOPIC, seed=seed)
    rng = world.new_rng("crash")
    crash_at = rng.randrange(1, 11)  # after this many members
    for number, name in enumerate(_names(10), 1):
        world.start_member(MemberTemplate(name=name, topics=frozenset({"t"})))
        world.run(250)
        if number == crash_at:
            rng.choice(world.live_members).crash(silently=True)
    world.run(5_000)
    return not any(each.is_reading for each in world.members)


_ONE_TOPIC: Final = WorldOptions(topics={"t": 10})


def upgraded_share(choice: SynchronizerChoice, seed: int) -> float:
    """Restart 6 members with a higher version, and return the share of upgraded synchronizers."""
    members = 6
    world = _new_world(
        _VersionedSingleAssignor(*_SETTINGS, choice=choice),
        _names(members, "old"),
        _ONE_TOPIC,
        seed=seed,
    )
    world.run(10_000)
    upgraded = 0
    for number in range(members - 1):  # with the last one, all are upgraded
        world.stop_member(world.members[number])
        world.run(5_000)
        world.start_member(MemberTemplate(name=f"new-{number}", topics=frozenset({"t"})))
        world.run(10_000)
        assert world.coordinator is not None
        coordinator: Any = world.coordinator.machine
        chosen = coordinator.groups[_GROUP_ID].synchronizer
        upgraded += any(
            each.name.startswith("new")
            for each in world.live_members
            if getattr(each.machine, "member_id", None) == chosen
        )
    return upgraded / (members - 1)


def measure_synchronizer_choices(cpu_clock_ns: Callable[[], int]) -> Claim:
    """The four ways to choose the synchronizer."""
    worlds, upgrades = range(200), range(4)
    measured = {
        choice: SynchronizerFigures(
            failed=sum(chooses_failed_member(choice, seed) for seed in worlds) / len(worlds),
            upgraded=sum(upgraded_share(choice, seed) for seed in upgrades) / len(upgrades),
        )
        for choice in SynchronizerChoice
    }
    figures = []
    for choice, each in measured.items():
        figures += [
            (f"{choice}: groups whose synchronizer had crashed", f"{each.failed:.0%}"),
            (f"{choice}: rebalances of an upgrade by an upgraded member", f"{each.upgraded:.0%}"),
        ]
    return Claim(
        title="The four ways to choose the synchronizer",
        statement=(
            "“… choosing the last member to join the group reduces the chance that a failed "
            "member will be chosen. … Another strategy would be to choose the newest member of "
            "the group, since it is the one most likely to have been upgraded, though this "
            "couldn't be depended on in practice. … The simplest solution is to choose a member "
            "randomly.”"
        ),
        figures=figures,
        verdict=judge_synchronizer_choices(measured),
        explanation=(
            "200 groups of 10 members, of which one crashes during the join; and 4 upgrades of 6 "
            "members, one after the other. If all versions are equal, the choice by version takes "
            "the member that joined first, which had the most time to crash."
        ),
    )


#: The measurements of these claims, in the order of the report.
VARIANT_CLAIMS: Final[tuple[Callable[[Callable[[], int]], Claim], ...]] = (
    measure_two_bounces,
    measure_resync,
    measure_largest_count,
    measure_compression,
    measure_closing,
    measure_synchronize_timeout,
    measure_synchronizer_choices,
)
