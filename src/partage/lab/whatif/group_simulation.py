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
from typing import Any, ClassVar

from partage.assignors import Assignor, Topic
from partage.bridge.consumer_protocol import (
    AssignmentInput,
    ConsumerProtocol,
    LeaderAssignmentError,
)
from partage.coordinator.records import GroupRecord
from partage.coordinator.states import GroupState
from partage.lab.clients.consumer import ConsumerProcess
from partage.lab.clients.poll_loop import PollLoop, partitions_by_topic
from partage.lab.scenario import Scenario
from partage.lab.whatif.assignor_choice import AssignorFailureError, make_assignor
from partage.lab.whatif.import_path import describe_failure
from partage.lab.whatif.live_group import LiveGroup, LiveMember
from partage.lab.whatif.simulated_group import (
    PROCESSING_MAX_MS,
    SimulatedGroup,
    SimulatedWorld,
    quiet_scenario,
)
from partage.member import events, outcome
from partage.member.events import SupportedProtocol
from partage.member.handler_context import HandlerContext
from partage.member.states import MemberState
from partage.member.timers import MemberTimer
from partage.model.topic_partition import TopicPartition
from partage.wire.consumer_protocol import Assignment, ConsumerTopicPartitions, encode_assignment
from partage.wire.primitives import MalformedError


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
    world: SimulatedWorld

    def handle(self, event: events.Event) -> None:
        super().handle(event)
        self.world.record_readers(self)

    def crash(self, *, silently: bool) -> None:
        super().crash(silently=silently)
        self.world.record_readers(self)

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


class _ClassicWorld(SimulatedWorld):
    """A world whose processes record their deliverable partitions."""

    def add_process(self, **arguments: Any) -> ConsumerProcess:
        process = _SimulatedMember(self, **arguments)
        self.processes.append(process)
        return process


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

    Args:
        name: The name of the assignor, for messages.
        assignor: The assignor.
        rack: The rack of the member.
        opening: The live assignment.
        simulation: The group, whose topics have racks and lags.
    """

    def __init__(
        self,
        name: str,
        assignor: Assignor,
        rack: str | None,
        opening: _LiveAssignment,
        simulation: GroupSimulation,
    ) -> None:
        super().__init__([assignor], rack)
        self._name = name
        self._opening = opening
        self._simulation = simulation

    def build_protocols(
        self, topics: Iterable[str], owned: Iterable[TopicPartition], generation: int
    ) -> tuple[SupportedProtocol, ...]:
        try:
            return super().build_protocols(topics, owned, generation)
        except Exception as error:
            raise self._failure(error) from error

    def assign(self, assigning: AssignmentInput, topics: Mapping[str, Topic]) -> dict[str, bytes]:
        if not self._opening.was_used:
            return self._opening.assignments(
                {m.member_id: self._process(m.member_id, m.instance_id) for m in assigning.members}
            )
        known = self._simulation.group.known_topics(topics, assigning.assignor.rack_of_broker)
        try:
            return super().assign(assigning, known)
        except Exception as error:
            raise self._failure(error) from error

    def apply_assignment(
        self, protocol: str, assignment: bytes, generation: int
    ) -> list[TopicPartition]:
        try:
            return super().apply_assignment(protocol, assignment, generation)
        except (LeaderAssignmentError, MalformedError):
            raise
        except Exception as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> AssignorFailureError:
        return AssignorFailureError(f"assignor {self._name} failed: {describe_failure(error)}")

    def _process(self, member_id: str, instance_id: str | None) -> str:
        """Return the process of a member, which may not know its member id yet."""
        for process in self._simulation.processes:
            if process.instance_id == instance_id and (
                instance_id is not None or member_id.startswith(f"{process.name}-")
            ):
                return process.name
        raise AssertionError(f"no process has the member id {member_id}")


class GroupSimulation(SimulatedGroup):
    """A copy of a live group whose members offer ``assignor``.

    A process has the live member's id as name. Its new member id starts with this name, so
    assignors see the members in their live order.

    Args:
        group: The group.
        assignor: A name for `make_assignor`.

    Raises:
        AssignorChoiceError: There is no such assignor.
    """

    def __init__(self, group: LiveGroup, assignor: str) -> None:
        super().__init__(group, quiet_scenario(group))
        self._assignor = assignor
        make_assignor(assignor)
        self._live_assignment = _LiveAssignment(
            {member.member_id: member.assigned for member in group.members}
        )
        self._restore_live_group()

    def _restore_live_group(self) -> None:
        """Bring the group into its live state."""
        world, group = self._world, self.group
        self._start_broker()
        shard = self._shard
        if group.generation is not None and group.generation > 1:
            shard.apply(GroupRecord(group_id=group.name, generation=group.generation - 1))
        for member in sorted(group.members, key=lambda member: member.member_id != group.leader):
            self.start_process(member, member.member_id)
            world.clock.run(10)  # the first member becomes leader
        self.wait_until_stable()
        self._check_live_state()

    def _new_world(self, scenario: Scenario) -> SimulatedWorld:
        return _ClassicWorld(scenario)

    @property
    def processes(self) -> list[ConsumerProcess]:
        """All processes that were started."""
        return self._world.processes

    @property
    def live_processes(self) -> list[ConsumerProcess]:
        return self._world.live_processes

    def _desynchronize_heartbeats(self) -> None:
        for process in self.live_processes:
            assert isinstance(process, _SimulatedMember)
            process.desynchronize_heartbeats()

    def request_rebalance(self) -> None:
        self._world.live_processes[0].request_rejoin()

    def start_process(
        self, like: LiveMember, name: str, place: str | None = None
    ) -> ConsumerProcess:
        self.member_by_process[name] = name if place is None else place
        return self._world.add_process(
            name=name,
            group_id=self.group.name,
            topics=frozenset(like.topics),
            protocol=_LiveThenAssignor(
                self._assignor,
                make_assignor(self._assignor),
                like.rack,
                self._live_assignment,
                self,
            ),
            instance_id=like.instance_id,
        )

    def _is_stable(self) -> bool:
        alive = self.live_processes
        shard = self._world.broker.shard
        found = None if shard is None else shard.classic_group(self.group.name)
        if found is None:
            return not alive
        if set(found.members) != {each.core.membership.member_id for each in alive}:
            return False
        if not alive:
            return found.state is GroupState.EMPTY
        return found.state is GroupState.STABLE and all(
            isinstance(each, _SimulatedMember) and each.is_stable for each in alive
        )
