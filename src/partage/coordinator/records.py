"""What a shard stores. `Shard.apply` is the only reader, live and on loading alike.

The records say what is, not what changed, so applying one twice is applying it once, and a log of
them may be compacted by key. `store.formats` gives them Kafka's bytes.
"""

from __future__ import annotations

import msgspec


class SavedMember(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A member as a generation is stored with it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes  # its metadata for the chosen protocol
    assignment: bytes = b""


class GroupSaved(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A group's generation; with ``awaiting_sync`` before JoinGroup is answered, without after."""

    group_id: str
    protocol_type: str | None = None
    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    since_ms: int = -1  # when the group came into this state
    awaiting_sync: bool = False
    members: tuple[SavedMember, ...] = ()


class GroupRemoved(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The group is gone."""

    group_id: str


class OffsetCommitted(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A committed offset; ``leader_epoch`` is -1 where the client gave none."""

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int
    expire_ms: int | None = None  # only in records of old clients; later ones follow the group


class OffsetRemoved(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The offset expired, or was deleted."""

    group_id: str
    topic: str
    partition: int


Record = GroupSaved | GroupRemoved | OffsetCommitted | OffsetRemoved
