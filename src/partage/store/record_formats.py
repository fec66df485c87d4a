"""A shard's records in Kafka's binary formats for ``__consumer_offsets``.

A key begins with its type: 0 and 1 for a committed offset, 2 for a classic group;
`consumer_group_formats` has those of consumer groups. A value begins with its
version. Offsets are written in v3, or in v1 if an old client requested a retention. Groups are
written in v4, the first version with tagged fields. Kafka writes both in v3 and reads v4. A key
without a value is a tombstone.
"""

from __future__ import annotations

import struct
from typing import Annotated, Final

from partage.coordinator.records import (
    GroupRecord,
    GroupTombstone,
    KeyedRecord,
    MemberRecord,
    OffsetRecord,
    OffsetTombstone,
)
from partage.store.consumer_group_formats import (
    CONSUMER_GROUP_KEY_TYPES,
    decode_consumer_record,
    encode_consumer_record,
)
from partage.wire.codec import decoder, encoder
from partage.wire.primitives import MalformedError
from partage.wire.types import (
    Array,
    Bool,
    Bytes,
    Int32,
    Int64,
    Message,
    NullableString,
    Since,
    String,
    Tagged,
    Until,
)

OFFSET_KEY_VERSION: Final = 1
GROUP_KEY_VERSION: Final = 2
OFFSET_VALUE_VERSION: Final = 3
OFFSET_VALUE_WITH_EXPIRY_VERSION: Final = 1
OFFSET_VALUE_READ_MAX: Final = 4
GROUP_VALUE_VERSION: Final = 4
_FLEXIBLE: Final = 4  # first flexible version of both values; keys are never flexible
#: Tag of our own field, far above Kafka's tags, which count up from 0.
AWAITING_SYNC_TAG: Final = 10_001

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_OFFSET_KEY_START = struct.Struct(">hh")  # version, size of the group
#: Version, offset, leader epoch, size of the metadata.
_OFFSET_VALUE_START = struct.Struct(">hqih")


class OffsetCommitKey(Message):
    """Kafka's OffsetCommitKey."""

    group: String
    topic: String
    partition: Int32


class OffsetCommitValue(Message):
    """Kafka's OffsetCommitValue, v0 to v4."""

    offset: Int64
    leader_epoch: Annotated[Int32, Since(3)] = -1
    metadata: String
    commit_timestamp_ms: Int64
    expire_timestamp_ms: Annotated[Int64, Since(1), Until(1)] = -1


class GroupMetadataKey(Message):
    """Kafka's GroupMetadataKey."""

    group: String


class MemberMetadata(Message):
    """A member in `GroupMetadataValue`."""

    member_id: String
    group_instance_id: Annotated[NullableString, Since(3)] = None
    client_id: String
    client_host: String
    rebalance_timeout_ms: Annotated[Int32, Since(1)] = -1
    session_timeout_ms: Int32
    subscription: Bytes
    assignment: Bytes


class GroupMetadataValue(Message):
    """Kafka's GroupMetadataValue, v0 to v4; ``awaiting_sync`` is a tagged field of Partage."""

    protocol_type: String
    generation: Int32
    protocol: NullableString
    leader: NullableString
    current_state_timestamp_ms: Annotated[Int64, Since(2)] = -1
    members: Array[MemberMetadata]
    awaiting_sync: Annotated[Bool, Tagged(AWAITING_SYNC_TAG, since=4)] = False


_GROUP_KEY_PREFIX = _INT16.pack(GROUP_KEY_VERSION)
_GROUP_PREFIX = _INT16.pack(GROUP_VALUE_VERSION)


# Encoding.


def encode_record(record: KeyedRecord) -> tuple[bytes, bytes | None]:
    """Encode a record.

    Returns:
        Key and value; the value of a tombstone is None.
    """
    match record:
        case OffsetRecord():
            return encode_offset(record)
        case OffsetTombstone():
            return _offset_key(record), None
        case GroupRecord():
            return _group_key(record.group_id), _group_value(record)
        case GroupTombstone():
            return _group_key(record.group_id), None
        case _:
            return encode_consumer_record(record)


def encode_offset(record: OffsetRecord) -> tuple[bytes, bytes]:
    """Encode a committed offset as key and value."""
    if record.expire_ms is not None:
        return _offset_key(record), _offset_value_with_expiry(record, record.expire_ms)
    metadata = record.metadata.encode()
    start = _OFFSET_VALUE_START.pack(
        OFFSET_VALUE_VERSION, record.offset, record.leader_epoch, len(metadata)
    )
    return _offset_key(record), start + metadata + _INT64.pack(record.commit_ms)


def _offset_key(record: OffsetRecord | OffsetTombstone) -> bytes:
    # Packed here and not by the codec: a broker writes thousands of these a second.
    group, topic = record.group_id.encode(), record.topic.encode()
    return (
        _OFFSET_KEY_START.pack(OFFSET_KEY_VERSION, len(group))
        + group
        + _INT16.pack(len(topic))
        + topic
        + _INT32.pack(record.partition)
    )


def _group_key(group_id: str) -> bytes:
    encode = encoder(GroupMetadataKey, 0, False)
    return b"".join((_GROUP_KEY_PREFIX, *encode(GroupMetadataKey(group=group_id))))


def _offset_value_with_expiry(record: OffsetRecord, expire_ms: int) -> bytes:
    version = OFFSET_VALUE_WITH_EXPIRY_VERSION
    value = OffsetCommitValue(
        offset=record.offset,
        metadata=record.metadata,
        commit_timestamp_ms=record.commit_ms,
        expire_timestamp_ms=expire_ms,
    )
    return b"".join((_INT16.pack(version), *encoder(OffsetCommitValue, version, False)(value)))


def _group_value(record: GroupRecord) -> bytes:
    value = GroupMetadataValue(
        protocol_type=record.protocol_type or "",
        generation=record.generation,
        protocol=record.protocol,
        leader=record.leader,
        current_state_timestamp_ms=record.since_ms,
        members=[
            MemberMetadata(
                member_id=m.member_id,
                group_instance_id=m.instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                rebalance_timeout_ms=m.rebalance_timeout_ms,
                session_timeout_ms=m.session_timeout_ms,
                subscription=m.subscription,
                assignment=m.assignment,
            )
            for m in record.members
        ],
        awaiting_sync=record.awaiting_sync,
    )
    encode = encoder(GroupMetadataValue, GROUP_VALUE_VERSION, True)
    return b"".join((_GROUP_PREFIX, *encode(value)))


# Decoding.


def decode_record(key: bytes, value: bytes | None) -> KeyedRecord | None:
    """Decode a record.

    Returns:
        The record. None for key types of other protocols, whose groups a Kafka broker keeps in the
        same topic.

    Raises:
        Malformed: The bytes do not match their key type.
    """
    kind = _version(key)
    if kind in (0, OFFSET_KEY_VERSION):
        return _decode_offset(key, value)
    if kind == GROUP_KEY_VERSION:
        return _decode_group(key, value)
    if kind in CONSUMER_GROUP_KEY_TYPES:
        return decode_consumer_record(kind, key, value)
    return None


def _version(data: bytes) -> int:
    if len(data) < 2:
        raise MalformedError(f"a version has 2 bytes, found {len(data)}")
    version: int = _INT16.unpack_from(data)[0]
    return version


def _decode_offset(key: bytes, value: bytes | None) -> OffsetRecord | OffsetTombstone:
    at: OffsetCommitKey = decoder(OffsetCommitKey, 0, False)(key, 2)[0]
    if value is None:
        return OffsetTombstone(group_id=at.group, topic=at.topic, partition=at.partition)
    version = _version(value)
    if not 0 <= version <= OFFSET_VALUE_READ_MAX:
        raise MalformedError(
            f"committed offset has version {version}; supported: 0 to {OFFSET_VALUE_READ_MAX}"
        )
    held: OffsetCommitValue = decoder(OffsetCommitValue, version, version >= _FLEXIBLE)(value, 2)[0]
    return OffsetRecord(
        group_id=at.group,
        topic=at.topic,
        partition=at.partition,
        offset=held.offset,
        leader_epoch=held.leader_epoch,
        metadata=held.metadata,
        commit_ms=held.commit_timestamp_ms,
        expire_ms=held.expire_timestamp_ms if held.expire_timestamp_ms >= 0 else None,
    )


def _decode_group(key: bytes, value: bytes | None) -> GroupRecord | GroupTombstone:
    at: GroupMetadataKey = decoder(GroupMetadataKey, 0, False)(key, 2)[0]
    if value is None:
        return GroupTombstone(group_id=at.group)
    version = _version(value)
    if not 0 <= version <= GROUP_VALUE_VERSION:
        raise MalformedError(f"group has version {version}; supported: 0 to {GROUP_VALUE_VERSION}")
    decode = decoder(GroupMetadataValue, version, version >= _FLEXIBLE)
    held: GroupMetadataValue = decode(value, 2)[0]
    return GroupRecord(
        group_id=at.group,
        protocol_type=held.protocol_type or None,
        generation=held.generation,
        protocol=held.protocol,
        leader=held.leader,
        since_ms=held.current_state_timestamp_ms,
        awaiting_sync=held.awaiting_sync,
        members=tuple(
            MemberRecord(
                member_id=m.member_id,
                instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                rebalance_timeout_ms=m.session_timeout_ms
                if m.rebalance_timeout_ms < 0
                else m.rebalance_timeout_ms,
                session_timeout_ms=m.session_timeout_ms,
                subscription=m.subscription,
                assignment=m.assignment,
            )
            for m in held.members
        ),
    )
