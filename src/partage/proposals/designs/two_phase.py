"""The accepted design, with the eager and with the cooperative protocol."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

import msgspec

from partage.assignors import CooperativeSticky, RoundRobin
from partage.assignors.base import Assignor
from partage.coordinator.records import Record
from partage.model.settings import GroupSettings
from partage.proposals.designs.multi_assignor import user_data
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.product.coordinator import record_key
from partage.proposals.simulation.design import Design, Finding, MemberTemplate
from partage.proposals.simulation.message_sizes import MessageSizes
from partage.proposals.two_phase.apis import APIS
from partage.proposals.two_phase.coordinator import TwoPhaseCoordinator
from partage.proposals.two_phase.member import TwoPhaseMember, member_settings
from partage.proposals.two_phase.reported_counts import CountReportingAssignor, ReportingMember
from partage.proposals.two_phase.resync import ResyncCoordinator, ResyncMember
from partage.wire.types import Message

_LATE_SYNC_RESPONSE: Final = Finding(
    rules=("one reader",),
    faults=("cut", "pause"),
    reason=(
        "The response to SyncGroup has the assignment. If it arrives after the coordinator has "
        "ended the session, the member starts to read partitions that another member reads, until "
        "its first heartbeat fails."
    ),
)

_LATE_COMMIT: Final = Finding(
    rules=("lost commits",),
    faults=("cut",),
    reason=(
        "A commit on an abandoned connection may arrive after later commits on the next one. In "
        "the same generation the coordinator accepts it: users may commit lower offsets, so it "
        "cannot tell."
    ),
)


class _TwoPhase(Design):
    """JoinGroup and SyncGroup, as Kafka built them."""

    findings: ClassVar[tuple[Finding, ...]] = (_LATE_SYNC_RESPONSE, _LATE_COMMIT)
    coordinator_class: ClassVar[type[TwoPhaseCoordinator]] = TwoPhaseCoordinator
    member_class: ClassVar[type[TwoPhaseMember]] = TwoPhaseMember

    def __init__(self, coordinator: CoordinatorSettings, member: DesignMemberSettings) -> None:
        self._group_settings = msgspec.structs.replace(
            GroupSettings(),
            initial_rebalance_delay_ms=coordinator.initial_rebalance_delay_ms,
            group_bytes_max=coordinator.metadata_bytes_max,
        )
        self._member_settings = member
        self._sizes = MessageSizes(APIS)

    def coordinator(self) -> TwoPhaseCoordinator:
        return self.coordinator_class(self._group_settings)

    def assignors(self, template: MemberTemplate) -> Sequence[Assignor]:
        """Return the assignors of a member."""
        return [self._assignor(user_data(template))]

    @abstractmethod
    def _assignor(self, metadata: bytes) -> Assignor:
        """Return the assignor of a member that adds this user data to its subscription."""

    def member(self, template: MemberTemplate) -> TwoPhaseMember:
        settings = self._member_settings
        return self.member_class(
            member_settings(
                settings.group_id, settings.session_timeout_ms, settings.heartbeat_interval_ms
            ),
            template.topics,
            self.assignors(template),
            settings.commit_interval_ms,
            template.topic_pattern,
        )

    def record_key(self, record: Record) -> Hashable | None:
        return record_key(record)

    def message_size(self, message: Message) -> int:
        return self._sizes.size(message)


class _RoundRobinWithUserData(RoundRobin):
    def __init__(self, metadata: bytes) -> None:
        self._metadata = metadata

    def user_data(self, topics: object, owned: object, generation: int) -> bytes | None:
        return self._metadata


class _StickyWithUserData(CooperativeSticky):
    def __init__(self, metadata: bytes) -> None:
        self._metadata = metadata

    def user_data(self, topics: object, owned: object, generation: int) -> bytes | None:
        return self._metadata


class TwoPhaseEager(_TwoPhase):
    """Every member gives up all partitions before it joins."""

    name: ClassVar[str] = "two-phase-eager"

    def _assignor(self, metadata: bytes) -> Assignor:
        return _RoundRobinWithUserData(metadata) if metadata else RoundRobin()


class TwoPhaseResync(TwoPhaseEager):
    """After a change of topic metadata, the leader assigns again without a new join."""

    name: ClassVar[str] = "two-phase-resync"
    findings: ClassVar[tuple[Finding, ...]] = (
        Finding(
            rules=("one reader", "commits", "lost commits", "duplicates"),
            faults=("new partition", "new topic"),
            reason=(
                "A resync has no join phase in which all members stop. A partition that moves is "
                "read by two members until the earlier one sends its next heartbeat. The "
                "generation stays the same, so the coordinator accepts commits of both, and the "
                "later one may be lower."
            ),
        ),
        _LATE_SYNC_RESPONSE,
        _LATE_COMMIT,
    )
    coordinator_class: ClassVar[type[TwoPhaseCoordinator]] = ResyncCoordinator
    member_class: ClassVar[type[TwoPhaseMember]] = ResyncMember


class TwoPhaseLargestCount(TwoPhaseEager):
    """Each member reports its partition counts, and the leader uses the largest."""

    name: ClassVar[str] = "two-phase-largest-count"
    member_class: ClassVar[type[TwoPhaseMember]] = ReportingMember

    def _assignor(self, metadata: bytes) -> Assignor:
        return CountReportingAssignor(metadata)


class TwoPhaseCooperative(_TwoPhase):
    """Only the partitions that move are given up (KIP-429)."""

    name: ClassVar[str] = "two-phase-cooperative"
    findings: ClassVar[tuple[Finding, ...]] = (
        Finding(
            rules=("one reader", "commits"),
            faults=("cut", "pause"),
            reason=(
                "A member keeps reading while it waits for the response to its JoinGroup. If it "
                "is cut off or stopped, the coordinator has sent that response and ends the "
                "session, and the member does not know it."
            ),
        ),
        _LATE_SYNC_RESPONSE,
        _LATE_COMMIT,
    )

    def _assignor(self, metadata: bytes) -> Assignor:
        return _StickyWithUserData(metadata) if metadata else CooperativeSticky()
