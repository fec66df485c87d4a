"""A copy of a live group in a separate world, on which events can be tried.

The coordinator, the member state machines, the assignors and the wire protocol are those of every
world. The members read no records. They send heartbeats, and notice revocations after they finished
their current work.

The simulation starts in the live state: the previous generation is written into the coordinator's
state, all members join, and the leader distributes the live assignment instead of calling its
assignor. After that, the production code decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from partage.assignors import (
    Assignor,
    ConsistentHashing,
    CooperativeSticky,
    Range,
    RoundRobin,
    Sticky,
    Topic,
)
from partage.bridge.consumer_protocol import AssignmentInput, ConsumerProtocol
from partage.coordinator.records import GroupRecord
from partage.coordinator.states import GroupState
from partage.lab.clients.consumer import ConsumerProcess
from partage.lab.clients.poll_loop import PollLoop, partitions_by_topic
from partage.lab.history import HistoryEntry, RequestReceived
from partage.lab.options import Options, Scenario
from partage.lab.whatif.handovers import MembershipChange, ReaderChange
from partage.lab.whatif.live_group import LiveGroup, LiveMember
from partage.lab.world import World
from partage.member import events, outcome
from partage.member.handler_context import HandlerContext
from partage.member.states import MemberState
from partage.member.timers import MemberTimer
from partage.model.topic_partition import TopicPartition
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.wire.consumer_protocol import Assignment, ConsumerTopicPartitions, encode_assignment
from partage.wire.types import Message

#: Assignors that need no data of members or topics that the simulation lacks.
ASSIGNORS: Final[Mapping[str, type[Assignor]]] = {
    each.name: each for each in (Range, RoundRobin, Sticky, CooperativeSticky, ConsistentHashing)
}
#: Longest time for which processing keeps a member from noticing events.
PROCESSING_MAX_MS: Final = 500
_LOAD_MAX_MS: Final = 500
_POLL_INTERVAL_MS: Final = 250
_STABLE_TIMEOUT_MS: Final = 60_000
_NEVER_MS: Final = 1 << 50


class _SimulatedWorld(World):
    """A world without checkers and stored topics: only the readers of partitions matter.

    Idle time can be skipped; ``skipped_ms`` is its sum.
    """

    has_invariant_checks: ClassVar[bool] = False

    def __init__(self, scenario: Scenario) -> None:
        self.timeline: list[ReaderChange] = []
        self.skipped_ms = 0
        super().__init__(scenario)

    @property
    def virtual_now_ms(self) -> int:
        """The virtual time, including skipped time."""
        return self.now_ms + self.skipped_ms

    @property
    def stored_topics(self) -> dict[str, int]:
        return {OFFSETS_TOPIC: 1}

    def append_history(self, entry: HistoryEntry) -> None:
        """Drop the entry: a simulation needs no history."""

    def record_response(self, request: RequestReceived, message: Message) -> None:
        """Drop the response: a simulation counts no generations."""

    def add_process(self, **arguments: Any) -> ConsumerProcess:
        process = _SimulatedMember(self, **arguments)
        self.processes.append(process)
        return process


class _IdlePollLoop(PollLoop):
    """A user that stays in a poll and reads no records."""

    def on_owned_changed(self, owned: frozenset[TopicPartition]) -> None:
        """Ignore the change: no records are read."""

    def poll(self) -> None:
        process = self._process
        process.handle(events.Polled(at_ms=process.world.now_ms, is_in_poll=True))


class _SimulatedMember(ConsumerProcess):
    """A member that records which partitions are deliverable."""

    poll_loop_class: ClassVar[type[PollLoop]] = _IdlePollLoop
    _deliverable: frozenset[TopicPartition] = frozenset()

    def handle(self, event: events.Event) -> None:
        super().handle(event)
        self._record_deliverable()

    def crash(self, *, silently: bool) -> None:
        super().crash(silently=silently)
        self._record_deliverable()

    def _record_deliverable(self) -> None:
        deliverable = self.core.deliverable if self.is_alive else frozenset()
        if deliverable != self._deliverable:
            self._deliverable = deliverable
            world = self.world
            assert isinstance(world, _SimulatedWorld)
            world.timeline.append(ReaderChange(world.virtual_now_ms, self.name, deliverable))

    def _perform_action(self, action: outcome.Action) -> None:
        match action:
            case outcome.WatchTopics():  # topics do not change
                return
            case outcome.CallListener():
                self.call_later(self.rng.randrange(PROCESSING_MAX_MS), self._run_listener)
        super()._perform_action(action)

    def _run_listener(self) -> None:
        due, self.pending_callback = self.pending_callback, None
        if due is not None:
            self.handle(events.CallbackCompleted(at_ms=self.world.now_ms, serial=due.serial))

    def desynchronize_heartbeats(self) -> None:
        """Set heartbeat intervals and phases to what they are after a long stable time."""
        now_ms, interval_ms = self.world.now_ms, self.world.options.heartbeat_interval_ms
        context = HandlerContext(now_ms)
        for _ in range(interval_ms.bit_length()):
            self.core.membership.link.schedule_heartbeat(context)
        self._arm(MemberTimer.HEARTBEAT, now_ms + self.rng.randrange(interval_ms))

    @property
    def is_stable(self) -> bool:
        """True if it owns its assignment and no callback is pending."""
        core = self.core
        return (
            core.membership.state is MemberState.STABLE
            and core.step is None
            and self.pending_callback is None
        )


class _LiveAssignment:
    """The live assignment by process name, which is distributed once."""

    def __init__(self, shares: Mapping[str, tuple[TopicPartition, ...]]) -> None:
        self._shares = shares
        self.was_used = False

    def assignments(self, named: Mapping[str, str]) -> dict[str, bytes]:
        """Return the encoded assignments.

        Args:
            named: The process name of each member id.
        """
        self.was_used = True
        return {
            member_id: encode_assignment(
                Assignment(
                    assigned_partitions=[
                        ConsumerTopicPartitions(topic=topic, partitions=indexes)
                        for topic, indexes in partitions_by_topic(self._shares[process]).items()
                    ]
                )
            )
            for member_id, process in named.items()
        }


class _LiveThenAssignor(ConsumerProtocol):
    """A protocol that distributes the live assignment first and uses the assignor from the second
    generation on.
    """

    def __init__(self, assignor: Assignor, opening: _LiveAssignment, world: World) -> None:
        super().__init__([assignor])
        self._opening = opening
        self._world = world

    def assign(self, assigning: AssignmentInput, topics: Mapping[str, Topic]) -> dict[str, bytes]:
        if self._opening.was_used:
            return super().assign(assigning, topics)
        return self._opening.assignments(
            {m.member_id: self._process(m.member_id, m.instance_id) for m in assigning.members}
        )

    def _process(self, member_id: str, instance_id: str | None) -> str:
        """Return the process of a member, which may not know its member id yet."""
        for process in self._world.processes:
            if process.instance_id == instance_id and (
                instance_id is not None or member_id.startswith(f"{process.name}-")
            ):
                return process.name
        raise AssertionError(f"no process has the member id {member_id}")


class GroupSimulation:
    """A copy of a live group whose members offer ``assignor``.

    A process has the live member's id as name. Its new member id starts with this name, so
    assignors see the members in their live order.
    """

    def __init__(self, group: LiveGroup, assignor: str) -> None:
        self.group = group
        self.member_by_process: dict[str, str] = {}  # the live member that each process stands for
        self.membership_changes: list[MembershipChange] = []
        self._assignor = ASSIGNORS[assignor]
        self._world = _SimulatedWorld(_scenario(group))
        self._world.partition_counts = group.partition_counts
        self._live_assignment = _LiveAssignment(
            {member.member_id: member.assigned for member in group.members}
        )
        self._restore_live_group()

    def _restore_live_group(self) -> None:
        """Bring the group into its live state."""
        world, group = self._world, self.group
        world.broker.start()
        world.clock.run(_LOAD_MAX_MS)
        shard = world.broker.shard
        assert shard is not None, "an empty disk is loaded within this time"
        if group.generation is not None and group.generation > 1:
            shard.apply(GroupRecord(group_id=group.name, generation=group.generation - 1))
        for member in sorted(group.members, key=lambda member: member.member_id != group.leader):
            self.start_process(member, member.member_id)
            world.clock.run(10)  # the first member becomes leader
        self.wait_until_stable()
        assert self.owners == group.owners, "the simulation starts with the live assignment"
        assert group.generation in (None, self.generation), (
            "the simulation starts in the live generation"
        )

    # State

    @property
    def now_ms(self) -> int:
        """The virtual time."""
        return self._world.virtual_now_ms

    @property
    def timeline(self) -> list[ReaderChange]:
        """The changes of the partitions that each process reads."""
        return self._world.timeline

    @property
    def generation(self) -> int:
        """The group's generation."""
        shard = self._world.broker.shard
        assert shard is not None, "the broker of a simulation does not fail"
        return shard.groups[self.group.name].generation

    @property
    def owners(self) -> dict[TopicPartition, str]:
        """The live member that each owned partition's owner stands for."""
        return {
            p: self.member_by_process[each.name]
            for each in self.live_processes
            for p in each.core.owned
        }

    @property
    def live_processes(self) -> list[ConsumerProcess]:
        """The members' live processes, in start order."""
        return self._world.live_processes

    # Actions

    def run(self, for_ms: int) -> None:
        """Let time pass; skip the rest once the group is stable."""
        end_ms = self.now_ms + for_ms
        while self.now_ms < end_ms:
            self._world.clock.run(min(_POLL_INTERVAL_MS, end_ms - self.now_ms))
            if self._is_stable():
                self._world.skipped_ms += end_ms - self.now_ms
                self._desynchronize_heartbeats()

    def _desynchronize_heartbeats(self) -> None:
        for process in self.live_processes:
            assert isinstance(process, _SimulatedMember)
            process.desynchronize_heartbeats()

    def mark_membership_change(self, processes: Iterable[str]) -> None:
        """Record that these processes start or stop now."""
        self.membership_changes.append(MembershipChange(self.now_ms, frozenset(processes)))

    def new_member_name(self, client_id: str) -> str:
        """Return a name for a new process, in the form of member ids."""
        return f"{client_id}-{self._world.rng.getrandbits(64):016x}"

    def start_process(
        self, like: LiveMember, name: str, place: str | None = None
    ) -> ConsumerProcess:
        """Start a process with a member's settings.

        Args:
            like: The member to copy.
            name: The process name.
            place: The live member that it stands for; default is the process itself.
        """
        self.member_by_process[name] = name if place is None else place
        return self._world.add_process(
            name=name,
            group_id=self.group.name,
            topics=frozenset(like.topics),
            protocol=_LiveThenAssignor(self._assignor(), self._live_assignment, self._world),
            instance_id=like.instance_id,
        )

    def wait_until_stable(self) -> bool:
        """Wait until all members own their assignments, then spread the heartbeats.

        Returns:
            False if the group does not become stable in time.
        """
        group = self.group
        timeout_ms = _STABLE_TIMEOUT_MS + 2 * (
            group.session_timeout_ms + group.max_poll_interval_ms
        )
        for _ in range(0, timeout_ms, _POLL_INTERVAL_MS):
            self._world.clock.run(_POLL_INTERVAL_MS)
            if self._is_stable():
                self._desynchronize_heartbeats()
                return True
        return False

    def _is_stable(self) -> bool:
        """Return True if the group has exactly the live processes as members and all are stable."""
        alive = self.live_processes
        shard = self._world.broker.shard
        found = None if shard is None else shard.groups.get(self.group.name)
        if found is None:
            return not alive
        if set(found.members) != {each.core.membership.member_id for each in alive}:
            return False
        if not alive:
            return found.state is GroupState.EMPTY
        return found.state is GroupState.STABLE and all(
            isinstance(each, _SimulatedMember) and each.is_stable for each in alive
        )


def _scenario(group: LiveGroup) -> Scenario:
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
