"""The interface of an assignor: a pure function from members and topics to an assignment.

Only the leader of a generation assigns. It decodes the members' subscriptions, passes them as
`Member` and `Topic`, and sends the result to the coordinator. An assignor has no I/O and no clock,
so the same input gives the same output on every machine.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final, Self

from partage.assignors.explanation import PartitionReason, explain_assignment
from partage.assignors.group_view import Assignment, Member, Topic
from partage.model.rebalance_protocol import RebalanceProtocol

#: The largest version that fits the wire format.
VERSION_MAX: Final = 32_767


class Assignor(ABC):
    """The base class of all assignors. A subclass sets ``name`` and implements ``assign``.

    ``name`` is the name of a protocol in JoinGroup; the coordinator chooses one that all members
    support. If an assignor changes so that old and new members cannot work together, add a version
    to ``versions``, newest first. Each version is a separate protocol (``name-v1``). Members offer
    all of them, and the group switches to the newest one once every member has it.

    With ``has_version_probing`` (KIP-429) all versions share one protocol name. Members of
    different versions work in one group: the newest member leads and finds the writer's version in
    `Member.version`. A coordinator that does not know versions may let an older member lead. Then
    the newer members use its version until a newer member leads.
    """

    name: ClassVar[str]
    versions: ClassVar[tuple[int, ...]] = (0,)
    has_version_probing: ClassVar[bool] = False
    rebalance_protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.EAGER,)
    #: True if the leader has to look up `Topic.lags` first.
    needs_lags: ClassVar[bool] = False
    #: The number of members that get each partition.
    replicas: int = 1
    #: The version of this object: the newest one, unless `at_version` made it.
    version: int = 0

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.versions or not all(0 <= version <= VERSION_MAX for version in cls.versions):
            raise ValueError(
                f"{cls.__name__}.versions must be 0 to {VERSION_MAX}, not {cls.versions}"
            )
        if list(cls.versions) != sorted(set(cls.versions), reverse=True):
            raise ValueError(
                f"{cls.__name__}.versions must be distinct and descending, not {cls.versions}"
            )
        cls.version = cls.versions[0]

    @property
    def protocol_name(self) -> str:
        """Name of this version in JoinGroup: ``name`` for version 0, else ``name-v1`` and so on.

        With ``has_version_probing`` it is ``name`` for all versions.
        """
        return (
            f"{self.name}-v{self.version}"
            if self.version and not self.has_version_probing
            else self.name
        )

    def at_version(self, version: int) -> Self:
        """Return a copy of this assignor with one of its versions.

        A consumer works with such copies, not with the object that the user passed. The copies are
        shallow: objects that an attribute refers to are shared, but assigning an attribute is not.
        """
        if version not in self.versions:
            raise ValueError(f"{self.name} has no version {version}: {self.versions}")
        other = copy.copy(self)
        other.version = version
        return other

    @abstractmethod
    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        """Compute the assignment of a generation. A cooperative assignor ends with `hold_back`.

        Args:
            members: All members of the group.
            topics: The existing topics by name. Members may also subscribe to topics that do not
                exist.

        Returns:
            The partition numbers by member id and topic.
        """

    def user_data(
        self, topics: Iterable[str], owned: Mapping[str, Sequence[int]], generation: int
    ) -> bytes | None:
        """Return data for the leader, to send with this member's subscription; None for none.

        Args:
            topics: The topics that this member subscribes to.
            owned: The partitions that it owns.
            generation: The generation in which it got them.
        """
        return None

    def on_assignment(self, assignment: Mapping[str, Sequence[int]], generation: int) -> None:  # noqa: B027
        """Receive this member's assignment in a generation, before the listener is called.

        Args:
            assignment: The partitions of this member, by topic.
            generation: The generation of the group.
        """

    def with_user_data(self, members: Sequence[Member]) -> Sequence[Member]:
        """Return the members with ``owned`` and ``generation`` as their user data states them.

        The assignment is validated and explained against the result. By default it is ``members``.
        """
        return members

    def rack_of_broker(self, host: str, rack: str | None) -> str | None:
        """Return the rack of a broker, for `Topic.racks`; by default that of the metadata.

        Args:
            host: The host name or address of the broker.
            rack: The rack in the metadata (``broker.rack``), None if the broker has none.
        """
        return rack

    def explain(
        self, members: Sequence[Member], topics: Mapping[str, Topic], assignment: Assignment
    ) -> list[PartitionReason]:
        """Return the reason for the placement of each partition, by default from what changed.

        Args:
            members: All members of the group, with the partitions that they owned.
            topics: The subscribed topics, by name.
            assignment: The assignment to explain.
        """
        return explain_assignment(self.with_user_data(members), topics, assignment)
