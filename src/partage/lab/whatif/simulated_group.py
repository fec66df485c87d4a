"""The common part of the copies of a live group, with either protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final, Protocol

from partage.coordinator.shard import Shard
from partage.lab.history import HistoryEntry, RequestReceived
from partage.lab.options import Options
from partage.lab.scenario import Scenario
from partage.lab.whatif.handovers import MembershipChange, ReaderChange
from partage.lab.whatif.live_group import LiveGroup, LiveMember
from partage.lab.world import World
from partage.model.topic_partition import TopicPartition
from partage.wire.types import Message

#: Longest time for which processing keeps a member from noticing events.
PROCESSING_MAX_MS: Final = 500
_POLL_INTERVAL_MS: Final = 250
#: Time for a group to become stable, besides two session timeouts and two poll intervals.
STABLE_TIMEOUT_MS: Final = 60_000
_NEVER_MS: Final = 1 << 50


class SimulatedWorld(World):
    """A world without checkers and stored topics: only the readers of partitions matter.

    Idle time can be skipped; ``skipped_ms`` is its sum.
    """

    has_invariant_checks: ClassVar[bool] = False

    def __init__(self, scenario: Scenario) -> None:
        self.timeline: list[ReaderChange] = []
        self.skipped_ms = 0
        self._read: dict[str, frozenset[TopicPartition]] = {}  # by process
        super().__init__(scenario)

    @property
    def virtual_now_ms(self) -> int:
        """The virtual time, including skipped time."""
        return self.now_ms + self.skipped_ms

    def record_readers(self, process: SimulatedProcess) -> None:
        """Add the partitions that a process may deliver to the timeline, if they changed."""
        deliverable = process.core.deliverable if process.is_alive else frozenset()
        if deliverable != self._read.get(process.name, frozenset()):
            self._read[process.name] = deliverable
            self.timeline.append(ReaderChange(self.virtual_now_ms, process.name, deliverable))

    @property
    def stored_topics(self) -> dict[str, int]:
        return {}  # members read no records

    def append_history(self, entry: HistoryEntry) -> None:
        """Drop the entry: a simulation needs no history."""

    def record_response(self, request: RequestReceived, message: Message) -> None:
        """Drop the response: a simulation counts no generations."""


class TrialProcess(Protocol):
    """A process with a member of the group."""

    name: str

    @property
    def has_left(self) -> bool:
        """True if it has left the group."""

    def crash(self, *, silently: bool) -> None:
        """Kill the process."""

    def leave(self) -> None:
        """Leave the group; a static member keeps its partitions for a while."""


class SimulatedProcess(TrialProcess, Protocol):
    """A process of the simulator."""

    core: Any
    is_alive: bool


class TrialGroup(ABC):
    """A copy of a live group on which events are tried.

    Args:
        group: The group.

    Attributes:
        group: The group.
        member_by_process: The live member that each process stands for.
        membership_changes: The starts and stops of processes, in order.
    """

    def __init__(self, group: LiveGroup) -> None:
        self.group = group
        self.member_by_process: dict[str, str] = {}
        self.membership_changes: list[MembershipChange] = []

    @property
    @abstractmethod
    def now_ms(self) -> int:
        """The virtual time."""

    @property
    @abstractmethod
    def timeline(self) -> list[ReaderChange]:
        """The changes of the partitions that each process reads."""

    @property
    @abstractmethod
    def generation(self) -> int:
        """The group's generation or epoch."""

    @property
    @abstractmethod
    def live_processes(self) -> Sequence[TrialProcess]:
        """The members' live processes, in start order."""

    @abstractmethod
    def owned_by(self, process: TrialProcess) -> frozenset[TopicPartition]:
        """Return the partitions that a process owns."""

    @abstractmethod
    def run(self, for_ms: int) -> None:
        """Let time pass."""

    def mark_membership_change(self, processes: Iterable[str]) -> None:
        """Record that these processes start or stop now."""
        self.membership_changes.append(MembershipChange(self.now_ms, frozenset(processes)))

    @abstractmethod
    def new_member_name(self, client_id: str) -> str:
        """Return a name for a new process, in the form of member ids."""

    @abstractmethod
    def start_process(self, like: LiveMember, name: str, place: str | None = None) -> TrialProcess:
        """Start a process with a member's settings.

        Args:
            like: The member to copy.
            name: The process name.
            place: The live member that it stands for; default is the process itself.
        """

    @abstractmethod
    def request_rebalance(self) -> None:
        """Cause a rebalance without any change of the members."""

    @abstractmethod
    def wait_until_stable(self) -> bool:
        """Wait until all members own their assignments.

        Returns:
            False if the group does not become stable in time.
        """


class SimulatedGroup(TrialGroup):
    """A copy of a live group whose members are processes of the simulator.

    Args:
        group: The group.
        scenario: The scenario of its world.
    """

    def __init__(self, group: LiveGroup, scenario: Scenario) -> None:
        super().__init__(group)
        self._world = self._new_world(scenario)
        self._world.partition_counts = group.partition_counts

    def _new_world(self, scenario: Scenario) -> SimulatedWorld:
        return SimulatedWorld(scenario)

    def _start_broker(self) -> None:
        self._world.start_brokers()

    def _check_live_state(self) -> None:
        assert self.owners == self.group.owners, "the simulation starts with the live assignment"
        assert self.group.generation in (None, self.generation), (
            "the simulation starts in the live generation"
        )

    @property
    def _shard(self) -> Shard:
        shard = self._world.broker.shard
        assert shard is not None, "the broker of a simulation does not fail"
        return shard

    # State

    @property
    def group_id(self) -> str:
        """The group id in the simulation."""
        return self.group.name

    @property
    def now_ms(self) -> int:
        return self._world.virtual_now_ms

    @property
    def timeline(self) -> list[ReaderChange]:
        return self._world.timeline

    @property
    def generation(self) -> int:
        return self._shard.groups[self.group_id].generation

    @property
    def owners(self) -> dict[TopicPartition, str]:
        """The live member that each owned partition's owner stands for."""
        return {
            p: self.member_by_process[each.name]
            for each in self.live_processes
            for p in each.core.owned
        }

    def owned_by(self, process: TrialProcess) -> frozenset[TopicPartition]:
        (found,) = [each for each in self.live_processes if each.name == process.name]
        return frozenset(found.core.owned)

    @property
    @abstractmethod
    def live_processes(self) -> Sequence[SimulatedProcess]:
        """The members' live processes, in start order."""

    # Actions

    def run(self, for_ms: int) -> None:
        """Let time pass; skip the rest once the group is stable."""
        end_ms = self.now_ms + for_ms
        while self.now_ms < end_ms:
            self._world.clock.run(min(_POLL_INTERVAL_MS, end_ms - self.now_ms))
            if self._is_stable():
                self._world.skipped_ms += end_ms - self.now_ms
                self._desynchronize_heartbeats()

    @abstractmethod
    def _desynchronize_heartbeats(self) -> None:
        """Set the heartbeats of all members to what they are after a long stable time."""

    def new_member_name(self, client_id: str) -> str:
        return f"{client_id}-{self._world.rng.getrandbits(64):016x}"

    def wait_until_stable(self) -> bool:
        """Wait until all members own their assignments, then spread the heartbeats."""
        group = self.group
        timeout_ms = STABLE_TIMEOUT_MS + 2 * (group.session_timeout_ms + group.max_poll_interval_ms)
        for _ in range(0, timeout_ms, _POLL_INTERVAL_MS):
            self._world.clock.run(_POLL_INTERVAL_MS)
            if self._is_stable():
                self._desynchronize_heartbeats()
                return True
        return False

    @abstractmethod
    def _is_stable(self) -> bool:
        """Return True if the group has exactly the live processes as members and all are stable."""


def quiet_scenario(group: LiveGroup) -> Scenario:
    """Return a scenario of normal speed without faults."""
    options = Options(
        members=1,
        static_share=0.0,
        has_second_group=False,
        partitions_t=1,
        partitions_u=1,
        assignors="cooperative-sticky",
        versions_below_newest_max=0,
        session_timeout_ms=group.session_timeout_ms,
        rebalance_timeout_ms=group.max_poll_interval_ms,
        heartbeat_interval_ms=group.heartbeat_interval_ms,
        max_poll_interval_ms=group.max_poll_interval_ms,
        poll_interval_ms=PROCESSING_MAX_MS,
        commits_at_revoke=False,
        initial_rebalance_delay_ms=3_000,
        new_member_join_timeout_ms=300_000,
        members_max=2**31 - 1,
        offsets_retention_ms=_NEVER_MS,
        retention_check_ms=_NEVER_MS,
        segment_bytes=1 << 30,
        delay_max_ms=2,
        frame_split_share=0.0,
        disk_delay_ms=2,
        produce_every_ms=_NEVER_MS,
        safety_ms=1_000,
        steps=0,
        kinds=(),
    )
    return Scenario(seed=1, options=options, plan=())
