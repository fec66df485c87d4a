"""A design whose machines are checked after each event."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from typing import Any

from partage.coordinator import invariants as shard_invariants
from partage.member import invariants as member_invariants
from partage.member.consumer_group import invariants as consumer_member
from partage.model.topic_partition import TopicPartition
from partage.proposals.broker_side import invariants as broker_side
from partage.proposals.broker_side.checker import PushCoordinatorChecker
from partage.proposals.broker_side.consumer import PushConsumer
from partage.proposals.broker_side.consumer_checker import PushConsumerChecker
from partage.proposals.broker_side.coordinator import PushCoordinator
from partage.proposals.broker_side.events import CommitTimer, PingTimer
from partage.proposals.consumer_protocol.member import ConsumerProtocolMember
from partage.proposals.join_group.checker import Dialect, JoinGroupCoordinatorChecker
from partage.proposals.join_group.coordinator import JoinGroupCoordinator
from partage.proposals.join_group.group import ExpirationTimer
from partage.proposals.join_group.member_checker import JoinGroupMemberChecker
from partage.proposals.machine import (
    Action,
    CoordinatorMachine,
    Event,
    MemberMachine,
    TimerFired,
)
from partage.proposals.multi_assignor import invariants as multi_assignor
from partage.proposals.multi_assignor.coordinator import MultiAssignorCoordinator
from partage.proposals.multi_assignor.member import MultiAssignorMember
from partage.proposals.product.coordinator import ProductCoordinator
from partage.proposals.simulation.design import Design, MemberTemplate
from partage.proposals.single_assignor import invariants as single_assignor
from partage.proposals.single_assignor.coordinator import (
    SingleAssignorCoordinator,
    TimeoutReaction,
)
from partage.proposals.single_assignor.member import SingleAssignorMember
from partage.proposals.two_phase.member import TwoPhaseMember
from partage.wire.types import Message


class _CheckedMachine(ABC):
    """A machine whose state and effects are checked after each event.

    Args:
        machine: The machine.
        checker: Checks the effects of each event; None if the design has no such checker.
    """

    def __init__(self, machine: Any, checker: Any) -> None:
        self.machine = machine
        #: The deadlines of the armed timers.
        self.armed: dict[Any, int] = {}
        self._checker = checker

    def handle(self, event: Event) -> Any:
        """Handle an event, check its effects and return them.

        Raises:
            AssertionError: A rule does not hold.
        """
        outcome = self.machine.handle(event)
        if isinstance(event, TimerFired):
            self.armed.pop(event.key, None)
        for key, deadline_ms in outcome.timers:
            if deadline_ms is None:
                self.armed.pop(key, None)
            else:
                self.armed[key] = deadline_ms
        self._check_state()
        if self._checker is not None:
            self._checker.check(event, outcome)
        return outcome

    @abstractmethod
    def _check_state(self) -> None:
        """Raise `AssertionError` if an invariant of the machine does not hold."""


class CheckedCoordinator(_CheckedMachine):
    """A coordinator that is checked after each event.

    Args:
        machine: The coordinator.
    """

    def __init__(self, machine: CoordinatorMachine) -> None:
        super().__init__(machine, _coordinator_checker(machine))

    def apply(self, record: Any) -> None:
        """Apply a stored record while loading."""
        self.machine.apply(record)
        if self._checker is not None:
            self._checker.load(record)

    def _check_state(self) -> None:
        armed = self.armed
        match self.machine:
            case PushCoordinator() as push:
                broker_side.check(push)
                broker_side.check_timers(push, armed)
            case MultiAssignorCoordinator() as multi:
                multi_assignor.check_coordinator(multi, armed)
            case SingleAssignorCoordinator() as single:
                single_assignor.check_coordinator(single, armed)
            case ProductCoordinator() as product:
                shard_invariants.check(product.shard, armed)

    def check_empty(self) -> None:
        """Raise `AssertionError` if there are members, or timers that belong to members."""
        armed = set(self.armed)
        match self.machine:
            case PushCoordinator() as push:
                assert not push.consumers, f"consumers are left: {push.consumers}"
                assert armed <= {CommitTimer(), PingTimer()}, f"timers are armed: {armed}"
                for each in push.groups.values():
                    assert not each.owners, f"owners are left: {each.owners}"
                    assert not each.uncommitted, f"offsets are not committed: {each.uncommitted}"
            case JoinGroupCoordinator() as join_group:
                for group in join_group.groups.values():
                    assert not group.members, f"members are left: {group.members}"
                armed = {each for each in armed if not isinstance(each, ExpirationTimer)}
                assert not armed, f"timers are armed: {armed}"
            case ProductCoordinator() as product:
                for group_base in product.shard.groups.values():
                    members = group_base.members_by_id
                    assert not members, f"members are left: {members}"


def _coordinator_checker(
    machine: CoordinatorMachine,
) -> PushCoordinatorChecker | JoinGroupCoordinatorChecker | None:
    match machine:
        case PushCoordinator():
            return PushCoordinatorChecker(machine.settings)
        case MultiAssignorCoordinator():
            return JoinGroupCoordinatorChecker(
                machine.settings, multi_assignor.MultiAssignorDialect()
            )
        case SingleAssignorCoordinator():
            return JoinGroupCoordinatorChecker(
                machine.settings,
                single_assignor.SingleAssignorDialect(),
                is_synchronized=True,
                removes_late_synchronizer=(machine._reaction is TimeoutReaction.NEXT_SYNCHRONIZER),
                synchronizer_rank=single_assignor.SYNCHRONIZER_RANKS.get(machine._choice),
            )
    return None


class CheckedMember(_CheckedMachine):
    """A member that is checked after each event.

    Args:
        machine: The member.
    """

    def __init__(self, machine: MemberMachine) -> None:
        super().__init__(machine, _member_checker(machine))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.machine, name)

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions of the current assignment."""
        owned: frozenset[TopicPartition] = self.machine.owned
        return owned

    @property
    def is_stable(self) -> bool:
        """True if the member has its assignment and nothing to do."""
        return bool(self.machine.is_stable)

    def _check_state(self) -> None:
        armed = self.armed
        match self.machine:
            case PushConsumer() as consumer:
                broker_side.check_consumer(consumer, armed)
            case MultiAssignorMember() as multi:
                multi_assignor.check_member(multi, armed)
            case SingleAssignorMember() as single:
                single_assignor.check_member(single, armed)
            case TwoPhaseMember() as product:
                member_invariants.check_ownership(product._core, armed)
            case ConsumerProtocolMember() as member:
                consumer_member.check_consumer_member(member._core, armed)


def _member_checker(
    machine: MemberMachine,
) -> PushConsumerChecker | JoinGroupMemberChecker | None:
    match machine:
        case PushConsumer():
            return PushConsumerChecker(machine.settings)
        case MultiAssignorMember():
            topics = machine.topics if machine.pattern is None else None
            dialect: Dialect = multi_assignor.MultiAssignorDialect()
            return JoinGroupMemberChecker(machine.settings, dialect, topics)
        case SingleAssignorMember():
            topics = machine.topics if machine.pattern is None else None
            dialect = single_assignor.SingleAssignorDialect()
            return JoinGroupMemberChecker(machine.settings, dialect, topics)
    return None


class CheckedDesign(Design):
    """A design whose machines are checked after each event.

    Args:
        design: The design.
    """

    def __init__(self, design: Design) -> None:
        self.design = design
        for name in Design.__annotations__:  # its class variables
            setattr(self, name, getattr(design, name))

    def coordinator(self) -> CheckedCoordinator:
        return CheckedCoordinator(self.design.coordinator())

    def member(self, template: MemberTemplate) -> CheckedMember:
        return CheckedMember(self.design.member(template))

    def record_key(self, record: Any) -> Hashable | None:
        return self.design.record_key(record)

    def rebalancing_switched(self, *, is_enabled: bool) -> Event:
        return self.design.rebalancing_switched(is_enabled=is_enabled)

    def check_empty(self, coordinator: CoordinatorMachine) -> None:
        assert isinstance(coordinator, CheckedCoordinator), f"unexpected {coordinator}"
        coordinator.check_empty()

    def message_size(self, message: Message) -> int:
        return self.design.message_size(message)

    def perform(self, action: Action) -> Iterable[tuple[int, Event]]:
        return self.design.perform(action)
