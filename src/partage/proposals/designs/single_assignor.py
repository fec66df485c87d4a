"""The design with a single assignor."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import ClassVar
from zlib import crc32

from partage.assignors import RoundRobin
from partage.proposals.assignment import assign_partitions
from partage.proposals.designs.multi_assignor import ONE_PHASE_FINDINGS, user_data
from partage.proposals.join_group.records import Record, record_key
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.machine import Action, Event
from partage.proposals.simulation.design import Design, Finding, MemberTemplate
from partage.proposals.simulation.message_sizes import SHARED_APIS, MessageSizes
from partage.proposals.single_assignor.coordinator import (
    SingleAssignorCoordinator,
    SynchronizerChoice,
    TimeoutReaction,
)
from partage.proposals.single_assignor.member import (
    ComputeShares,
    SharesComputed,
    SingleAssignorMember,
    SingleAssignorOptions,
)
from partage.proposals.single_assignor.messages import JOIN_GROUP
from partage.wire.types import Message


class SingleAssignor(Design):
    """The coordinator sends all metadata to one member, which assigns within the join.

    Args:
        coordinator: The coordinator's settings.
        member: The members' settings.
        choice: How the coordinator chooses that member; None for the default of the class.
        sends_timeout: True if members say how long the coordinator shall wait.
        assign_ms: How long the assignor takes.
    """

    name: ClassVar[str] = "single-assignor"
    findings: ClassVar[tuple[Finding, ...]] = ONE_PHASE_FINDINGS
    #: How the coordinator chooses that member by default.
    default_choice: ClassVar[SynchronizerChoice] = SynchronizerChoice.RANDOM
    #: What follows if that member does not answer in time.
    reaction: ClassVar[TimeoutReaction] = TimeoutReaction.FAIL_GENERATION

    def __init__(
        self,
        coordinator: CoordinatorSettings,
        member: DesignMemberSettings,
        *,
        choice: SynchronizerChoice | None = None,
        sends_timeout: bool = True,
        assign_ms: int = 0,
    ) -> None:
        self._coordinator_settings = coordinator
        self._member_settings = member
        self._choice = choice or self.default_choice
        self._sends_timeout = sends_timeout
        self._assign_ms = assign_ms
        self._assignor = RoundRobin()
        self._sizes = MessageSizes((*SHARED_APIS, (JOIN_GROUP, 0)))

    def coordinator(self) -> SingleAssignorCoordinator:
        return SingleAssignorCoordinator(
            self._coordinator_settings, choice=self._choice, reaction=self.reaction
        )

    def member(self, template: MemberTemplate) -> SingleAssignorMember:
        options = SingleAssignorOptions(
            assignor=self._assignor,
            pattern=template.topic_pattern,
            sends_timeout=self._sends_timeout,
            metadata_version=self.metadata_version(template),
            user_data=user_data(template),
        )
        return SingleAssignorMember(self._member_settings, template.topics, options)

    def metadata_version(self, template: MemberTemplate) -> int:
        """Return the metadata version of a member, for the choice by version."""
        return 0

    def record_key(self, record: Record) -> Hashable | None:
        return record_key(record)

    def message_size(self, message: Message) -> int:
        return self._sizes.size(message)

    def perform(self, action: Action) -> Iterable[tuple[int, Event]]:
        assert isinstance(action, ComputeShares), f"unexpected action {action}"
        shares = assign_partitions(action.assignor, action.members, action.topics)
        return [(self._assign_ms, SharesComputed(at_ms=0, number=action.number, shares=shares))]


class LastToJoinAssigns(SingleAssignor):
    """The last member that joined the generation assigns."""

    name: ClassVar[str] = "single-assignor-last-to-join"
    default_choice: ClassVar[SynchronizerChoice] = SynchronizerChoice.LAST_TO_JOIN


class NewestAssigns(SingleAssignor):
    """The member that joined the group last assigns."""

    name: ClassVar[str] = "single-assignor-newest"
    default_choice: ClassVar[SynchronizerChoice] = SynchronizerChoice.NEWEST


class HighestVersionAssigns(SingleAssignor):
    """The member with the highest version of the metadata assigns; about half of them have it."""

    name: ClassVar[str] = "single-assignor-highest-version"
    default_choice: ClassVar[SynchronizerChoice] = SynchronizerChoice.HIGHEST_VERSION

    def metadata_version(self, template: MemberTemplate) -> int:
        return crc32(template.name.encode()) % 2


class NextSynchronizer(SingleAssignor):
    """If the synchronizer does not answer in time, another member is asked."""

    name: ClassVar[str] = "single-assignor-next-synchronizer"
    reaction: ClassVar[TimeoutReaction] = TimeoutReaction.NEXT_SYNCHRONIZER
