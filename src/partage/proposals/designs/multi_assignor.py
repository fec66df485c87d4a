"""The design with many assignors, and its variants."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar, Final

from partage.assignors import ConsistentHashing, RoundRobin
from partage.assignors.base import Assignor
from partage.assignors.group_view import Member
from partage.proposals.assignment import Shares
from partage.proposals.join_group.records import Record, record_key
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.multi_assignor.computation import (
    GROUP_DECOMPRESSED_BYTES_MAX,
    GroupComputation,
    GroupSubscriptions,
    MetadataCompression,
)
from partage.proposals.multi_assignor.coordinator import MultiAssignorCoordinator
from partage.proposals.multi_assignor.member import (
    MultiAssignorMember,
    MultiAssignorOptions,
)
from partage.proposals.multi_assignor.messages import JOIN_GROUP, JoinGroupResponse
from partage.proposals.multi_assignor.metadata import (
    MEMBER_DECOMPRESSED_BYTES_MAX,
    HashedMetadata,
)
from partage.proposals.simulation.design import Design, Finding, MemberTemplate
from partage.proposals.simulation.message_sizes import SHARED_APIS, MessageSizes
from partage.wire.types import Message

#: The findings of the designs in which the response to JoinGroup has the assignment.
ONE_PHASE_FINDINGS: Final = (
    Finding(
        rules=("one reader", "commits"),
        faults=("coordinator crash", "coordinator expiry"),
        reason=(
            "The coordinator keeps the members in memory. The next one does not know them, and "
            "assigns the partitions of a member that is cut off or stopped. That member reads "
            "until its session ends."
        ),
    ),
    Finding(
        rules=("one reader", "commits"),
        faults=("cut",),
        reason=(
            "The response to JoinGroup has the assignment, and no further request checks the "
            "generation. A response that the network delivers after the coordinator has ended the "
            "session starts a reader all the same."
        ),
    ),
)


class _SharedComputation(GroupComputation):
    """Computes what the members of a simulation compute from the same input only once."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[list[Any], Any]] = {}

    def _once(self, name: str, given: list[Any], compute: Callable[[], Any]) -> Any:
        """Return the last result if the input is the same; objects are compared by identity."""
        kept = self._last.get(name)
        if kept is not None and all(
            a is b or (isinstance(a, dict) and a == b) for a, b in zip(kept[0], given, strict=True)
        ):
            return kept[1]
        result = compute()
        self._last[name] = (given, result)
        return result

    def subscriptions(
        self, response: JoinGroupResponse, topics: Mapping[str, int], *, is_compressed: bool
    ) -> GroupSubscriptions:
        given = [response.members, response.compressed_members, dict(topics)]
        found: GroupSubscriptions = self._once(
            "subscriptions",
            given,
            lambda: GroupComputation.subscriptions(
                self, response, topics, is_compressed=is_compressed
            ),
        )
        return found

    def hashes(
        self, response: JoinGroupResponse, *, is_compressed: bool
    ) -> dict[str, HashedMetadata]:
        given = [response.members, response.compressed_members]
        found: dict[str, HashedMetadata] = self._once(
            "hashes",
            given,
            lambda: GroupComputation.hashes(self, response, is_compressed=is_compressed),
        )
        return found

    def assign(
        self, assignor: Assignor, members: tuple[Member, ...], topics: Mapping[str, int]
    ) -> Shares:
        kept = self._last.get("assign")
        if kept is not None and kept[0] == [members, topics]:
            found: Shares = kept[1]
            return found
        shares = GroupComputation.assign(self, assignor, members, topics)
        self._last["assign"] = ([members, dict(topics)], shares)
        return shares


class MultiAssignor(Design):
    """Every member gets all metadata and computes the assignment."""

    name: ClassVar[str] = "multi-assignor"
    findings: ClassVar[tuple[Finding, ...]] = ONE_PHASE_FINDINGS
    compression: ClassVar[MetadataCompression] = MetadataCompression.NONE
    hashes_subscription: ClassVar[bool] = False
    checks_metadata: ClassVar[bool] = True
    coordinator_metadata_after: ClassVar[int | None] = None

    def __init__(self, coordinator: CoordinatorSettings, member: DesignMemberSettings) -> None:
        self._coordinator_settings = coordinator
        self._member_settings = member
        self._sizes = MessageSizes((*SHARED_APIS, (JOIN_GROUP, 0)), {JoinGroupResponse: "members"})
        self._assignor = self._new_assignor()
        self._computation = _SharedComputation()

    def _new_assignor(self) -> Assignor:
        return RoundRobin()

    def coordinator(self) -> MultiAssignorCoordinator:
        return MultiAssignorCoordinator(
            self._coordinator_settings,
            compresses_members=self.compression is MetadataCompression.GROUP,
        )

    def member(self, template: MemberTemplate) -> MultiAssignorMember:
        options = MultiAssignorOptions(
            assignors=(self._assignor,),
            pattern=template.topic_pattern,
            hashes_subscription=self.hashes_subscription,
            compression=self.compression,
            checks_metadata=self.checks_metadata,
            coordinator_metadata_after=self.coordinator_metadata_after,
            user_data=user_data(template),
        )
        return MultiAssignorMember(
            self._member_settings, template.topics, options, self._computation
        )

    def record_key(self, record: Record) -> Hashable | None:
        return record_key(record)

    def message_size(self, message: Message) -> int:
        return self._sizes.size(message)


class HashedSubscriptions(MultiAssignor):
    """Members send a hash of their subscription; the largest sub-group with one is active."""

    name: ClassVar[str] = "multi-assignor-hashes"
    hashes_subscription: ClassVar[bool] = True


class CompressedMembers(MultiAssignor):
    """Each member compresses its metadata."""

    name: ClassVar[str] = "multi-assignor-compressed"
    compression: ClassVar[MetadataCompression] = MetadataCompression.MEMBER
    member_metadata_bytes_max: ClassVar[int | None] = MEMBER_DECOMPRESSED_BYTES_MAX


class CompressedGroup(MultiAssignor):
    """The coordinator compresses the metadata of all members as a whole."""

    name: ClassVar[str] = "multi-assignor-compressed-group"
    compression: ClassVar[MetadataCompression] = MetadataCompression.GROUP
    group_metadata_bytes_max: ClassVar[int | None] = GROUP_DECOMPRESSED_BYTES_MAX


class CoordinatorMetadata(MultiAssignor):
    """After a disagreement, members fetch all metadata from the coordinator."""

    name: ClassVar[str] = "multi-assignor-coordinator-metadata"
    coordinator_metadata_after: ClassVar[int | None] = 1


class UncheckedConsistentHashing(MultiAssignor):
    """Consistent hashing without a load bound, which needs no agreement about topics."""

    name: ClassVar[str] = "multi-assignor-consistent-hashing"
    checks_metadata: ClassVar[bool] = False

    def _new_assignor(self) -> Assignor:
        return ConsistentHashing(headroom=None)


def user_data(template: MemberTemplate) -> bytes:
    """Return the user data of a member: text that compresses about as well as topic names do."""
    line = f"{template.name} host-{template.name}.example.com cpus=8 rack=r1 ".encode()
    size = template.metadata_bytes
    return (line * (size // len(line) + 1))[:size]
