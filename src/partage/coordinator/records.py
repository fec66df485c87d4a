"""The records of a shard's log. `Shard.apply` is their only reader, both live and while loading.

A record holds the full state of its key and not a change. So applying it twice has no further
effect, and the log can be compacted by key. Only the records of transactions depend on their order:
a marker ends the pending offsets before it. `store.record_formats` converts the records to
Kafka's binary formats.
"""

from __future__ import annotations

import msgspec

from partage.coordinator.consumer_group.records import ConsumerGroupRecords


class MemberRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A member as it is stored with a generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes  # its metadata for the selected protocol
    assignment: bytes = b""


class GroupRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A generation of a group.

    It is stored twice: with ``awaiting_sync`` before JoinGroup is answered, and without it when the
    leader has assigned.
    """

    group_id: str
    protocol_type: str | None = None
    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    since_ms: int = -1  # when the group entered this state
    awaiting_sync: bool = False
    members: tuple[MemberRecord, ...] = ()


class GroupTombstone(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The tombstone of a removed group."""

    group_id: str


class OffsetRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A committed offset. ``leader_epoch`` is -1 if the client gave none."""

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int
    expire_ms: int | None = None  # set by old clients only; other offsets expire with the group


class OffsetTombstone(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The tombstone of an offset that expired or was deleted."""

    group_id: str
    topic: str
    partition: int


class TransactionalOffsetRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An offset that a transaction commits. It is pending until the transaction ends."""

    producer_id: int
    producer_epoch: int
    offset: OffsetRecord


class TransactionMarker(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The end of a producer's transaction: its pending offsets are committed or dropped."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool


#: The records that the log keeps by key.
KeyedRecord = GroupRecord | GroupTombstone | OffsetRecord | OffsetTombstone | ConsumerGroupRecords
Record = KeyedRecord | TransactionalOffsetRecord | TransactionMarker
