"""One cell of a comparison: one design, run through the phases of one workload."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import msgspec

from partage.proposals.designs.catalog import DesignFactory, find_design
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.simulation.design import Design, MemberTemplate
from partage.proposals.simulation.processes import DesignMemberProcess
from partage.proposals.simulation.readers import ReadingStats
from partage.proposals.simulation.traffic import Traffic
from partage.proposals.simulation.world import DesignWorld, WorldOptions

#: The time of the phase "steady".
STEADY_MS: Final = 30_000
_CHURN_GAP_MS: Final = 2_000
_GROUP_ID: Final = "compared"
#: Its multiples, modulo 1, are spread evenly.
_GOLDEN_RATIO: Final = 0.6180339887


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a cell.

    Attributes:
        design: The name of a design or variant.
        members: Members of the group.
        partitions: Partitions of all topics together; 0 for two for each member.
        topics: Topics of the group.
        subscribed_topics: Topics of each member, in turn; 0 for all topics.
        metadata_kb: User data in the metadata of each member, in KB.
        joining: Members that join together in the phase "join".
        kills: Members that are killed together in the phase "crash".
        paused: Members that are stopped together in the phase "pause".
        churn: Members that are replaced in the phase "churn", one every 2 s.
        slow_ms: Delay of each message of the slow member in the phase "slow".
        session_timeout_ms: The members' session timeout.
        heartbeat_interval_ms: The members' heartbeat interval.
        metadata_refresh_ms: How often members refresh their metadata.
        seed: The seed of all random draws.
        phases: The phases after "form", in order; see `PHASES`.
    """

    design: str
    members: int = 10
    partitions: int = 0
    topics: int = 1
    subscribed_topics: int = 0
    metadata_kb: float = 0.0
    joining: int = 1
    kills: int = 1
    paused: int = 1
    churn: int = 3
    slow_ms: int = 1_000
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    metadata_refresh_ms: int = 30_000
    seed: int = 1
    phases: tuple[str, ...] = (
        "steady",
        "join",
        "leave",
        "crash",
        "pause",
        "churn",
        "slow",
        "coordinator loss",
        "new partitions",
    )

    @property
    def partition_count(self) -> int:
        """The number of partitions."""
        return self.partitions or 2 * self.members

    @property
    def partitions_by_topic(self) -> dict[str, int]:
        """The number of partitions of each topic."""
        each, more = divmod(self.partition_count, self.topics)
        return {f"events-{n:04}": each + (n < more) for n in range(self.topics)}

    def subscription(self, number: int) -> frozenset[str]:
        """Return the topics of a member.

        Args:
            number: How many members were started before it.
        """
        names = list(self.partitions_by_topic)
        count = self.subscribed_topics or len(names)
        return frozenset(names[(number + n) % len(names)] for n in range(count))

    def member(self, number: int) -> MemberTemplate:
        """Return a member to start.

        Args:
            number: How many members were started before it.
        """
        return MemberTemplate(
            name=f"member-{number:05}",
            topics=self.subscription(number),
            metadata_bytes=int(self.metadata_kb * 1000),
        )

    def create_design(self, factory: DesignFactory | None = None) -> Design:
        """Return the design with the settings of the workload, and no limit of metadata.

        Args:
            factory: Creates the design; by default the one that the workload names.
        """
        return (factory or find_design(self.design))(
            CoordinatorSettings(metadata_bytes_max=sys.maxsize),
            DesignMemberSettings(
                group_id=_GROUP_ID,
                session_timeout_ms=self.session_timeout_ms,
                heartbeat_interval_ms=self.heartbeat_interval_ms,
            ),
        )

    @property
    def phase_timeout_ms(self) -> int:
        """The time within which a phase must end stable."""
        return 3 * self.session_timeout_ms + 2 * self.metadata_refresh_ms + 60_000


class PhaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one phase.

    The counts are those from the disturbance until the group was stable for the last time. The
    following time, in which a cell verifies that nothing changes, does not count.

    Attributes:
        phase: The name of the phase.
        is_stable: True if every partition had one reader, no member had work to do, and none had
            failed in the end.
        stable_after_s: Time until the last change of a reader; null if the phase did not end
            stable.
        counted_s: Time in which messages, bytes and CPU time were counted.
        messages: Messages to and from the coordinator, with heartbeats, pings and commits.
        bytes: Their size with frames and headers.
        bytes_by_message: Their size by type of message.
        coordinator_cpu_ms: CPU time in the coordinator's state machine on this machine.
        unread_partition_s: Time without a reader, summed over all partitions.
        moved_partitions: How often a partition moved to another member.
        duplicate_records: Records that were read again.
        round_trips: The most requests of one member until it had its last assignment.
    """

    phase: str
    is_stable: bool
    stable_after_s: float | None
    counted_s: float
    messages: int
    bytes: int
    bytes_by_message: dict[str, int]
    coordinator_cpu_ms: float
    unread_partition_s: float
    moved_partitions: int
    duplicate_records: int
    round_trips: int


class CellResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one cell. ``broken_rules`` are guarantees that did not hold."""

    workload: Workload
    phases: list[PhaseResult]
    broken_rules: list[str]
    double_read_s: float

    def phase(self, name: str) -> PhaseResult:
        """Return the measurements of a phase."""
        return next(each for each in self.phases if each.phase == name)


class PhaseTraffic:
    """The traffic of a phase until the group was stable for the last time.

    Args:
        begin_ms: When the phase began.
    """

    def __init__(self, begin_ms: int) -> None:
        self._begin_ms = begin_ms
        self._end_ms = begin_ms
        self._traffic = Traffic()

    def count(self, traffic: Traffic, at_ms: int) -> None:
        """Keep the traffic so far: the group is stable now."""
        self._traffic, self._end_ms = traffic.copy(), at_ms

    def result(
        self, phase: str, reading: ReadingStats, requests: Iterable[int], *, is_stable: bool
    ) -> PhaseResult:
        """Return the measurements of the phase.

        Args:
            phase: The name of the phase.
            reading: The readers of the phase.
            requests: The requests of each member until its last assignment.
            is_stable: True if the phase ended stable.
        """
        traffic = self._traffic
        changed_ms = max(reading.changed_ms, self._begin_ms)
        return PhaseResult(
            phase=phase,
            is_stable=is_stable,
            stable_after_s=(changed_ms - self._begin_ms) / 1000 if is_stable else None,
            counted_s=(self._end_ms - self._begin_ms) / 1000,
            messages=sum(traffic.messages.values()),
            bytes=sum(traffic.bytes.values()),
            bytes_by_message=dict(traffic.bytes),
            coordinator_cpu_ms=round(traffic.cpu_ns / 1e6, 3),
            unread_partition_s=round(reading.unread_partition_ms / 1000, 3),
            moved_partitions=reading.moved,
            duplicate_records=reading.duplicates,
            round_trips=max(requests, default=0),
        )


class CellRun:
    """A world that goes through the phases of a workload.

    Args:
        workload: The workload.
        cpu_clock_ns: Measures the coordinator's CPU time; see `DesignWorld`.
        factory: Creates the design; by default the one that the workload names.
    """

    def __init__(
        self,
        workload: Workload,
        cpu_clock_ns: Callable[[], int],
        factory: DesignFactory | None = None,
    ) -> None:
        self.workload = workload
        options = WorldOptions(
            topics=workload.partitions_by_topic,
            metadata_refresh_ms=workload.metadata_refresh_ms,
        )
        self.world = DesignWorld(
            workload.create_design(factory), options, workload.seed, cpu_clock_ns
        )
        self._started = 0

    def start_members(self, count: int) -> None:
        """Start members with the next free names."""
        for _ in range(count):
            self.world.start_member(self.workload.member(self._started))
            self._started += 1

    def run(self) -> CellResult:
        """Run all phases."""
        results = [self.measure("form", lambda: self.start_members(self.workload.members))]
        for number, phase in enumerate(self.workload.phases):
            self._wait_within_heartbeat(number)
            results.append(self.measure(phase, partial(PHASES[phase], self)))
        world = self.world
        return CellResult(
            workload=self.workload,
            phases=results,
            broken_rules=[f"{each.rule}: {each.description}" for each in world.broken_rules],
            double_read_s=world.readers.double_read_ms / 1000,
        )

    def _wait_within_heartbeat(self, number: int) -> None:
        """Wait for a part of the heartbeat interval that depends on the phase and the seed.

        The members of a group send their heartbeats at nearly the same time, and learn of a
        rebalance with them. The parts of consecutive seeds are spread over the interval.

        Args:
            number: How many phases were before, without "form".
        """
        part = (self.workload.seed + number) * _GOLDEN_RATIO % 1
        self.world.run(int(part * self.workload.heartbeat_interval_ms))

    def measure(self, phase: str, disturb: Callable[[], None]) -> PhaseResult:
        """Disturb the group, and wait until it is stable again.

        Args:
            phase: The name of the phase in the result.
            disturb: Causes the disturbance.
        """
        world = self.world
        world.traffic.take()
        world.readers.take(world.clock.now_ms)
        for member in world.members:
            member.requests = member.requests_at_start = 0
        begin_ms = world.clock.now_ms
        counted = PhaseTraffic(begin_ms)
        disturb()
        is_stable = world.run_until_settled(
            self.workload.phase_timeout_ms,
            lambda: counted.count(world.traffic, world.clock.now_ms),
        )
        is_stable = is_stable and not any(each.error for each in world.members)
        world.network.heal()
        if not is_stable:
            counted.count(world.traffic, world.clock.now_ms)
        requests = [each.requests_at_start for each in world.members]
        reading = world.readers.take(world.clock.now_ms)
        return counted.result(phase, reading, requests, is_stable=is_stable)

    # Phases

    def steady(self) -> None:
        """Change nothing for a time."""
        self.world.run(STEADY_MS)

    def join(self) -> None:
        """Start further members."""
        self.start_members(self.workload.joining)

    def leave(self) -> None:
        """Close the first member that reads."""
        self.world.stop_member(self._readers()[0])

    def crash(self) -> None:
        """Kill the first members that read, together with their machines."""
        for each in self._readers()[: self.workload.kills]:
            each.crash(silently=True)

    def pause(self) -> None:
        """Stop the first members that read for longer than their session, then continue them."""
        for each in self._readers()[: self.workload.paused]:
            each.pause(2 * self.workload.session_timeout_ms)

    def churn(self) -> None:
        """Replace members, each before the group has finished with the one before."""
        leaving = self._readers()[: self.workload.churn]
        for each in leaving:
            self.start_members(1)
            self.world.stop_member(each)
            self.world.run(_CHURN_GAP_MS)

    def slow_down(self) -> None:
        """Start a member while the messages of another one take long, until the phase ends."""
        slow = self._readers()[0]
        workload = self.workload
        self.world.network.slow_down(slow.name, workload.slow_ms, workload.phase_timeout_ms)
        self.start_members(1)

    def lose_coordinator(self) -> None:
        """Kill the coordinator, and let time pass until members have reached another one.

        Its last writes survive. With a lost one, the figures would be about that draw: the
        coordinator of `broker-side` commits the offsets of all members in one write.
        """
        self.world.crash_coordinator(loses_writes=False)
        heartbeat_ms = self.workload.heartbeat_interval_ms
        self.world.run(self.world.options.failover_ms + heartbeat_ms)

    def add_partitions(self) -> None:
        """Add a tenth of all partitions to the first topic, at least one."""
        topic = next(iter(self.world.topics))
        self.world.add_partitions(topic, max(1, self.workload.partition_count // 10))

    def _readers(self) -> list[DesignMemberProcess]:
        return [each for each in self.world.live_members if each.is_reading]


#: The disturbances of a workload, by the name of the phase.
PHASES: Final[dict[str, Callable[[CellRun], None]]] = {
    "steady": CellRun.steady,
    "join": CellRun.join,
    "leave": CellRun.leave,
    "crash": CellRun.crash,
    "pause": CellRun.pause,
    "churn": CellRun.churn,
    "slow": CellRun.slow_down,
    "coordinator loss": CellRun.lose_coordinator,
    "new partitions": CellRun.add_partitions,
}


def run_cell(workload: Workload, cpu_clock_ns: Callable[[], int] = lambda: 0) -> CellResult:
    """Run one cell.

    Raises:
        ValueError: The design or a phase does not exist.
    """
    unknown = [each for each in workload.phases if each not in PHASES]
    if unknown:
        raise ValueError(f"no phase {unknown[0]!r}. The phases are: {', '.join(PHASES)}")
    return CellRun(workload, cpu_clock_ns).run()
