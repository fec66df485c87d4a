"""The records of consumer groups.

As with classic groups, a record holds the full state of its key. The numbers are Kafka's types of
the records; `store.record_formats` converts them to Kafka's binary formats.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from partage.coordinator.consumer_group.partitions import EpochedPartitions, PartitionSet


class ReconciliationState(IntEnum):
    """The progress of a member on its way to its target assignment, with Kafka's number."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class ClassicProtocolRecord(msgspec.Struct, frozen=True, gc=False):
    """A protocol that a classic member of a consumer group lists in JoinGroup."""

    name: str
    metadata: bytes


class ClassicMemberRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The part of a member's record that only members with the classic protocol have."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocolRecord, ...] = ()


class ConsumerGroupRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A consumer group and its epoch (type 3).

    ``metadata_hash`` is the hash of the subscribed topics at this epoch; 0 without topics.
    """

    group_id: str
    epoch: int
    metadata_hash: int = 0


class ConsumerMemberRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A member and its subscription (type 5)."""

    group_id: str
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    subscribed_topics: tuple[str, ...] = ()
    subscribed_regex: str | None = None  # RE2; None for no pattern
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMemberRecord | None = None


class TargetAssignmentRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The epoch of the target assignment, and the time when it was computed (type 6)."""

    group_id: str
    assignment_epoch: int
    assignment_ms: int = 0


class MemberTargetRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The target assignment of a member (type 7)."""

    group_id: str
    member_id: str
    partitions: PartitionSet = {}


class MemberAssignmentRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The current assignment of a member (type 8).

    ``pending_revocation`` are the partitions that the member must stop reading first.
    """

    group_id: str
    member_id: str
    member_epoch: int
    previous_member_epoch: int
    state: ReconciliationState = ReconciliationState.STABLE
    assigned: EpochedPartitions = {}
    pending_revocation: EpochedPartitions = {}


class RegularExpressionRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The topics that a subscribed regular expression matched (type 16).

    ``version`` is the version of the catalogue of topics, and ``resolved_ms`` the time.
    """

    group_id: str
    regex: str
    topics: tuple[str, ...] = ()
    version: int
    resolved_ms: int


class ConsumerGroupTombstone(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The tombstone of a removed consumer group (type 3)."""

    group_id: str


class ConsumerMemberTombstone(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The tombstone of a removed member (type 5)."""

    group_id: str
    member_id: str


class TargetAssignmentTombstone(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The tombstone of the target assignment of a removed group (type 6)."""

    group_id: str


class MemberTargetTombstone(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The tombstone of the target assignment of a removed member (type 7)."""

    group_id: str
    member_id: str


class MemberAssignmentTombstone(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The tombstone of the current assignment of a removed member (type 8)."""

    group_id: str
    member_id: str


class RegularExpressionTombstone(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The tombstone of a regular expression to which no member subscribes (type 16)."""

    group_id: str
    regex: str


ConsumerGroupRecords = (
    ConsumerGroupRecord
    | ConsumerGroupTombstone
    | ConsumerMemberRecord
    | ConsumerMemberTombstone
    | TargetAssignmentRecord
    | TargetAssignmentTombstone
    | MemberTargetRecord
    | MemberTargetTombstone
    | MemberAssignmentRecord
    | MemberAssignmentTombstone
    | RegularExpressionRecord
    | RegularExpressionTombstone
)
