"""What an assignor is: a pure function from members and topics to who gets what.

Only the leader of a generation assigns. It decodes what every member brought, hands it in as
`Member` and `Topic`, and sends out what comes back; nothing here does I/O or keeps a clock, so the
same input always gives the same output, on any machine.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import ClassVar, Final, Self, TypeAlias

import msgspec

from partage.assignors.explaining import Reason, reasons

#: By member id, by topic: partition numbers.
Assignment: TypeAlias = Mapping[str, Mapping[str, Sequence[int]]]

#: A member that does not say in which generation it got what it owns.
NO_GENERATION = -1

#: As much as a version takes on the wire.
VERSION_MAX: Final = 32_767


class RebalanceProtocol(IntEnum):
    """How members give up partitions: all of them before they join, or those that move (KIP-429).

    Of several the highest counts that all of a consumer's assignors support.
    """

    EAGER = 0
    COOPERATIVE = 1


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A member of the group, as the leader sees it.

    ``owned`` and ``generation`` are what its subscription says it owns, and since which generation
    (-1: it does not say). ``user_data`` is what its own `Assignor.user_data` made, ``version`` the
    version of the assignor that made it.
    """

    member_id: str
    topics: tuple[str, ...] = ()
    instance_id: str | None = None
    owned: Mapping[str, Sequence[int]] = {}
    generation: int = NO_GENERATION
    rack: str | None = None
    user_data: bytes = b""
    version: int = 0

    @property
    def order(self) -> tuple[bool, str]:
        """Static members first, by instance id, then the others by member id, as in Kafka.

        A static member keeps its place when it comes back under a new member id (KIP-345).
        """
        if self.instance_id is None:
            return True, self.member_id
        return False, self.instance_id


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic as the leader's metadata has it.

    ``racks`` holds for each partition the racks of its replicas, and ``lags`` the records that the
    group has yet to read; both may be empty where nobody knows or needs them.
    """

    name: str
    partition_count: int
    racks: tuple[frozenset[str], ...] = ()
    lags: tuple[int, ...] = ()


class Assignor(ABC):
    """The base of all assignors: name it, and write ``assign``.

    ``name`` is how members find out that they agree: it is a protocol of JoinGroup. When an
    assignor changes so that old and new cannot work together, give it one more of ``versions``,
    newest first: each is a protocol of its own (``name-v1``), members offer them all, and the group
    moves to the newest once everybody has it.

    One that is ``probing`` (KIP-429) has one protocol for all its versions instead. New and old
    members work side by side: the newest leads, and reads in `Member.version` who wrote what.
    Where an older one has to lead, on a coordinator that knows nothing of versions, the newer ones
    speak its version until it does not lead any more.
    """

    name: ClassVar[str]
    versions: ClassVar[tuple[int, ...]] = (0,)
    probing: ClassVar[bool] = False
    rebalance_protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.EAGER,)
    #: Whether the leader has to look up `Topic.lags` first.
    needs_lags: ClassVar[bool] = False
    #: How many members get each partition.
    replicas: int = 1
    #: The version that this object speaks; the newest, unless it came from `at`.
    version: int = 0

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.versions or not all(0 <= version <= VERSION_MAX for version in cls.versions):
            raise ValueError(
                f"{cls.__name__}.versions must be 0 to {VERSION_MAX}, not {cls.versions}"
            )
        if list(cls.versions) != sorted(set(cls.versions), reverse=True):
            raise ValueError(
                f"{cls.__name__}.versions must be distinct and in descending order, not {cls.versions}"
            )
        cls.version = cls.versions[0]

    @property
    def protocol_name(self) -> str:
        """The name of this version in JoinGroup: ``name`` for version 0, ``name-v1``, ...

        ``name`` for all versions of one that is `probing`.
        """
        return f"{self.name}-v{self.version}" if self.version and not self.probing else self.name

    def at(self, version: int) -> Self:
        """A copy of this assignor that speaks one of its versions.

        A consumer works with such copies, not with the object that it was given; they are shallow,
        so what an attribute refers to is shared by all, and one that is set anew is not.
        """
        if version not in self.versions:
            raise ValueError(f"{self.name} has no version {version}: {self.versions}")
        other = copy.copy(self)
        other.version = version
        return other

    @abstractmethod
    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        """Who gets what. ``topics`` has those that exist; a member may want others as well.

        A cooperative assignor ends with `hold_back`.
        """

    def user_data(
        self, topics: Iterable[str], owned: Mapping[str, Sequence[int]], generation: int
    ) -> bytes | None:
        """What this member tells the leader, beside what it subscribes to and owns."""
        return None

    def on_assignment(self, assignment: Mapping[str, Sequence[int]], generation: int) -> None:  # noqa: B027
        """Told on every member what it got in which generation, before its listener hears of it."""

    def understand(self, members: Sequence[Member]) -> Sequence[Member]:
        """The members with what their user data says of ``owned`` and ``generation``.

        That is what an assignment is to be checked and explained against. By default they are as
        their subscriptions have them.
        """
        return members

    def rack_of_broker(self, host: str, rack: str | None) -> str | None:
        """The rack of a broker, for `Topic.racks`; by default what the metadata says."""
        return rack

    def explain(
        self, members: Sequence[Member], topics: Mapping[str, Topic], assignment: Assignment
    ) -> list[Reason]:
        """Why each partition went where it went; by default from what has changed."""
        return reasons(self.understand(members), topics, assignment)
