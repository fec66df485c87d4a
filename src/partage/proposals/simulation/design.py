"""The interface through which a world runs a design."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from typing import Any, ClassVar

import msgspec

from partage.proposals.machine import Action, CoordinatorMachine, Event, MemberMachine
from partage.proposals.topic_pattern import TopicPattern
from partage.wire.types import Message


class MemberTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A member to start.

    Attributes:
        name: The name of its process.
        topics: The topics to subscribe to; empty with a pattern.
        pattern: A pattern of topics to subscribe to, see `TopicPattern`; empty without one.
        metadata_bytes: The size of the user data in its metadata.
    """

    name: str
    topics: frozenset[str]
    pattern: str = ""
    metadata_bytes: int = 0

    @property
    def topic_pattern(self) -> TopicPattern | None:
        """The pattern; None without one.

        Raises:
            ValueError: The pattern is invalid.
        """
        return TopicPattern(self.pattern) if self.pattern else None

    def is_subscribed(self, topic: str) -> bool:
        """Return True if the member subscribes to a topic."""
        pattern = self.topic_pattern
        return topic in self.topics if pattern is None else pattern.matches(topic)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A guarantee that a design cannot give under some faults, and the reason.

    ``rules`` and ``faults`` have the names of `RULES` and `FAULTS` in `trial`. Without ``faults``,
    the design breaks the rules in any world.
    """

    rules: tuple[str, ...]
    faults: tuple[str, ...]
    reason: str


class Design(ABC):
    """One design, or one variant of it, with its settings."""

    #: The name in reports and on the command line.
    name: ClassVar[str]
    #: Rules that the design breaks by construction.
    findings: ClassVar[tuple[Finding, ...]] = ()
    #: The most partitions of one member that the messages can carry; None without a limit.
    partitions_per_member_max: ClassVar[int | None] = None
    #: The most metadata of one member that other members accept; None without a limit.
    member_metadata_bytes_max: ClassVar[int | None] = None
    #: The most metadata of all members together that a member accepts; None without a limit.
    group_metadata_bytes_max: ClassVar[int | None] = None
    #: True if the coordinator, not the members, watches the topics.
    watches_topics: ClassVar[bool] = False
    #: True if members commit at their commit interval.
    commits_at_intervals: ClassVar[bool] = True

    #: True if an operator can switch the rebalancing of a group off.
    can_switch_rebalancing: ClassVar[bool] = False

    @abstractmethod
    def coordinator(self) -> CoordinatorMachine:
        """Return a new coordinator without groups."""

    @abstractmethod
    def member(self, template: MemberTemplate) -> MemberMachine:
        """Return a new member."""

    @abstractmethod
    def message_size(self, message: Message) -> int:
        """Return the bytes of a message on the wire, with its frame and header."""

    def record_key(self, record: Any) -> Hashable | None:
        """Return the key of a durable record, which a later record with this key replaces; None if
        it is kept.
        """
        return None

    def rebalancing_switched(self, *, is_enabled: bool) -> Event:
        """Return the event of a coordinator whose group an operator switches; see
        `can_switch_rebalancing`.
        """
        raise AssertionError(f"{self.name} has no such switch")

    def check_empty(self, coordinator: CoordinatorMachine) -> None:  # noqa: B027
        """Raise `AssertionError` if a coordinator whose members have left still works for them.

        Only a `CheckedDesign` checks it.
        """

    def perform(self, action: Action) -> Iterable[tuple[int, Event]]:
        """Perform an action that only this design has.

        Returns:
            The events that follow, each with its delay in ms. ``at_ms`` of an event is 0.
        """
        raise AssertionError(f"{self.name} has no action {action}")
