"""The common part of classic groups and consumer groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import ClassVar, Protocol

from partage.coordinator.records import MemberRecord, OffsetRecord, Record
from partage.coordinator.states import GroupState

#: Returns the topics that a member's metadata subscribes to, or None if it is no subscription. The
#: coordinator does not parse metadata itself; the owner of the shard provides a function that does.
SubscribedTopics = Callable[[bytes], frozenset[str] | None]


class GroupType(StrEnum):
    """The protocol of a group, with the name that ListGroups shows."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class GroupMember(Protocol):
    """A member of a group of either type."""

    @property
    def id(self) -> str:
        """Its member id."""

    @property
    def client_id(self) -> str:
        """Its client id."""


class GroupBase(ABC):
    """A group of either type, as the requests see it that serve both."""

    __slots__ = ("id",)

    #: The protocol of the group.
    type: ClassVar[GroupType]

    def __init__(self, group_id: str) -> None:
        self.id = group_id

    @property
    @abstractmethod
    def generation(self) -> int:
        """The number of the last generation, or the epoch of a consumer group."""

    @property
    @abstractmethod
    def classic_state(self) -> GroupState:
        """The state, or for a consumer group the corresponding one: Empty or Stable."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The name of its state, as Kafka's tools show it."""

    @property
    @abstractmethod
    def protocol_type_name(self) -> str:
        """Its protocol type, as ListGroups shows it; empty if it never had members."""

    @property
    @abstractmethod
    def members_by_id(self) -> Mapping[str, GroupMember]:
        """Its members by id."""

    def member_record(self, member_id: str) -> MemberRecord | None:
        """Return the identity of a member for its events; None if the handlers know it."""
        return None

    @abstractmethod
    def topics_in_use(self, subscribed_topics: SubscribedTopics) -> frozenset[str] | None:
        """Return the topics that its members subscribe to; None if they are unknown."""

    @abstractmethod
    def retention_start_ms(self, offset: OffsetRecord, in_use: frozenset[str] | None) -> int | None:
        """Return the time from which the retention of an offset counts; None if it is in use.

        Args:
            offset: An offset of the group.
            in_use: The topics that its members subscribe to; None if they are unknown.
        """

    @abstractmethod
    def tombstones(self) -> list[Record]:
        """Return the records that remove the group from the log."""
