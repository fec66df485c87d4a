"""The records of consumer groups in Kafka's binary formats (KIP-848): types 3, 5 to 8, and 16.

Type 4, the partitions of the subscribed topics, is from before Kafka 4.1. It is skipped: the hash
in type 3 replaces it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Annotated, Any, Final

from msgspec import field

from partage.coordinator.consumer_group.partitions import EpochedPartitions, PartitionSet
from partage.coordinator.consumer_group.records import (
    ClassicMemberRecord,
    ClassicProtocolRecord,
    ConsumerGroupRecord,
    ConsumerGroupRecords,
    ConsumerGroupTombstone,
    ConsumerMemberRecord,
    ConsumerMemberTombstone,
    MemberAssignmentRecord,
    MemberAssignmentTombstone,
    MemberTargetRecord,
    MemberTargetTombstone,
    ReconciliationState,
    RegularExpressionRecord,
    RegularExpressionTombstone,
    TargetAssignmentRecord,
    TargetAssignmentTombstone,
)
from partage.wire.codec import decoder, encoder
from partage.wire.primitives import MalformedError
from partage.wire.types import (
    Array,
    Bytes,
    Int8,
    Int32,
    Int64,
    Message,
    NullableArray,
    NullableString,
    String,
    Tagged,
    Uuid,
)

_GROUP: Final = 3
_MEMBER: Final = 5
_TARGET: Final = 6
_MEMBER_TARGET: Final = 7
_MEMBER_ASSIGNMENT: Final = 8
_REGEX: Final = 16
_VALUE_VERSION: Final = 0
_INT16 = struct.Struct(">h")


class ConsumerGroupKey(Message):
    """The keys of types 3 and 6: ConsumerGroupMetadataKey and ...TargetAssignmentMetadataKey."""

    group_id: String


class ConsumerGroupMemberKey(Message):
    """The keys of types 5, 7 and 8."""

    group_id: String
    member_id: String


class ConsumerGroupRegularExpressionKey(Message):
    """Kafka's ConsumerGroupRegularExpressionKey."""

    group_id: String
    regular_expression: String


class ConsumerGroupMetadataValue(Message):
    """Kafka's ConsumerGroupMetadataValue."""

    epoch: Int32
    metadata_hash: Annotated[Int64, Tagged(0, since=0)] = 0


class ClassicProtocolValue(Message):
    """A protocol in `ClassicMemberMetadataValue`."""

    name: String
    metadata: Bytes


class ClassicMemberMetadataValue(Message):
    """The part of a member that uses the classic protocol."""

    session_timeout_ms: Int32
    supported_protocols: Array[ClassicProtocolValue]


class ConsumerGroupMemberMetadataValue(Message):
    """Kafka's ConsumerGroupMemberMetadataValue."""

    instance_id: NullableString
    rack_id: NullableString
    client_id: String
    client_host: String
    subscribed_topic_names: Array[String]
    subscribed_topic_regex: NullableString
    rebalance_timeout_ms: Int32 = -1
    server_assignor: NullableString
    #: Kafka's default is an empty structure, so null must be written.
    classic_member_metadata: Annotated[ClassicMemberMetadataValue | None, Tagged(0, since=0)] = (
        field(
            default_factory=lambda: ClassicMemberMetadataValue(
                session_timeout_ms=0, supported_protocols=[]
            )
        )
    )


class ConsumerGroupTargetAssignmentMetadataValue(Message):
    """Kafka's ConsumerGroupTargetAssignmentMetadataValue."""

    assignment_epoch: Int32
    assignment_timestamp_ms: Annotated[Int64, Tagged(0, since=0)] = 0


class TargetTopicPartitions(Message):
    """The partitions of one topic in a target assignment."""

    topic_id: Uuid
    partitions: Array[Int32]


class ConsumerGroupTargetAssignmentMemberValue(Message):
    """Kafka's ConsumerGroupTargetAssignmentMemberValue."""

    topic_partitions: Array[TargetTopicPartitions]


class AssignedTopicPartitions(Message):
    """The partitions of one topic in a current assignment, with their epochs (KIP-1251).

    Kafka before 4.3 writes no epochs; then those of the member apply.
    """

    topic_id: Uuid
    partitions: Array[Int32]
    assignment_epochs: Annotated[NullableArray[Int32], Tagged(0, since=0)] = None


class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """Kafka's ConsumerGroupCurrentMemberAssignmentValue."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: Array[AssignedTopicPartitions]
    partitions_pending_revocation: Array[AssignedTopicPartitions]


class ConsumerGroupRegularExpressionValue(Message):
    """Kafka's ConsumerGroupRegularExpressionValue."""

    topics: Array[String]
    version: Int64
    timestamp_ms: Int64


_KEYS: Final[dict[int, type[Message]]] = {
    _GROUP: ConsumerGroupKey,
    _MEMBER: ConsumerGroupMemberKey,
    _TARGET: ConsumerGroupKey,
    _MEMBER_TARGET: ConsumerGroupMemberKey,
    _MEMBER_ASSIGNMENT: ConsumerGroupMemberKey,
    _REGEX: ConsumerGroupRegularExpressionKey,
}
#: The types of the keys of consumer groups.
CONSUMER_GROUP_KEY_TYPES: Final = frozenset(_KEYS)


# Encoding.


def encode_consumer_record(record: ConsumerGroupRecords) -> tuple[bytes, bytes | None]:
    """Encode a record of a consumer group.

    Returns:
        Key and value; the value of a tombstone is None.
    """
    match record:
        case ConsumerGroupRecord() | ConsumerGroupTombstone():
            key_type, key = _GROUP, _group_key(record.group_id)
        case ConsumerMemberRecord() | ConsumerMemberTombstone():
            key_type, key = _MEMBER, _member_key(record.group_id, record.member_id)
        case TargetAssignmentRecord() | TargetAssignmentTombstone():
            key_type, key = _TARGET, _group_key(record.group_id)
        case MemberTargetRecord() | MemberTargetTombstone():
            key_type, key = _MEMBER_TARGET, _member_key(record.group_id, record.member_id)
        case MemberAssignmentRecord() | MemberAssignmentTombstone():
            key_type, key = _MEMBER_ASSIGNMENT, _member_key(record.group_id, record.member_id)
        case RegularExpressionRecord() | RegularExpressionTombstone():
            key_type = _REGEX
            key = ConsumerGroupRegularExpressionKey(
                group_id=record.group_id, regular_expression=record.regex
            )
    encoded_key = b"".join((_INT16.pack(key_type), *encoder(type(key), 0, False)(key)))
    value = _value(record)
    if value is None:
        return encoded_key, None
    # the values are flexible from version 0 on
    encode = encoder(type(value), _VALUE_VERSION, True)
    return encoded_key, b"".join((_INT16.pack(_VALUE_VERSION), *encode(value)))


def _group_key(group_id: str) -> Message:
    return ConsumerGroupKey(group_id=group_id)


def _member_key(group_id: str, member_id: str) -> Message:
    return ConsumerGroupMemberKey(group_id=group_id, member_id=member_id)


def _value(record: ConsumerGroupRecords) -> Message | None:
    match record:
        case ConsumerGroupRecord():
            return ConsumerGroupMetadataValue(
                epoch=record.epoch, metadata_hash=record.metadata_hash
            )
        case ConsumerMemberRecord():
            return _member_value(record)
        case TargetAssignmentRecord():
            return ConsumerGroupTargetAssignmentMetadataValue(
                assignment_epoch=record.assignment_epoch,
                assignment_timestamp_ms=record.assignment_ms,
            )
        case MemberTargetRecord():
            return ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=[
                    TargetTopicPartitions(topic_id=topic_id, partitions=list(partitions))
                    for topic_id, partitions in record.partitions.items()
                ]
            )
        case MemberAssignmentRecord():
            return ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=record.member_epoch,
                previous_member_epoch=record.previous_member_epoch,
                state=record.state,
                assigned_partitions=_assigned(record.assigned),
                partitions_pending_revocation=_assigned(record.pending_revocation),
            )
        case RegularExpressionRecord():
            return ConsumerGroupRegularExpressionValue(
                topics=list(record.topics),
                version=record.version,
                timestamp_ms=record.resolved_ms,
            )
    return None


def _member_value(record: ConsumerMemberRecord) -> ConsumerGroupMemberMetadataValue:
    classic = None
    if record.classic is not None:
        classic = ClassicMemberMetadataValue(
            session_timeout_ms=record.classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocolValue(name=each.name, metadata=each.metadata)
                for each in record.classic.protocols
            ],
        )
    return ConsumerGroupMemberMetadataValue(
        instance_id=record.instance_id,
        rack_id=record.rack_id,
        client_id=record.client_id,
        client_host=record.client_host,
        subscribed_topic_names=list(record.subscribed_topics),
        subscribed_topic_regex=record.subscribed_regex or "",
        rebalance_timeout_ms=record.rebalance_timeout_ms,
        server_assignor=record.server_assignor,
        classic_member_metadata=classic,
    )


def _assigned(partitions: EpochedPartitions) -> list[AssignedTopicPartitions]:
    return [
        AssignedTopicPartitions(
            topic_id=topic_id,
            partitions=list(epochs),
            assignment_epochs=list(epochs.values()),
        )
        for topic_id, epochs in partitions.items()
    ]


# Decoding.


def decode_consumer_record(key_type: int, key: bytes, value: bytes | None) -> ConsumerGroupRecords:
    """Decode a record of a consumer group; ``key_type`` is the type at the start of the key.

    Raises:
        MalformedError: The bytes do not match the type, or the version of the value is unknown.
    """
    at: Any = decoder(_KEYS[key_type], 0, False)(key, 2)[0]
    if value is None:
        return _tombstone(key_type, at)
    if len(value) < 2:
        raise MalformedError(f"a version has 2 bytes, found {len(value)}")
    (version,) = _INT16.unpack_from(value)
    if version != _VALUE_VERSION:
        raise MalformedError(
            f"record of type {key_type} has version {version}; supported: {_VALUE_VERSION}"
        )
    return _READERS[key_type](at, value)


def _tombstone(key_type: int, at: Any) -> ConsumerGroupRecords:
    match key_type:
        case 3:
            return ConsumerGroupTombstone(group_id=at.group_id)
        case 5:
            return ConsumerMemberTombstone(group_id=at.group_id, member_id=at.member_id)
        case 6:
            return TargetAssignmentTombstone(group_id=at.group_id)
        case 7:
            return MemberTargetTombstone(group_id=at.group_id, member_id=at.member_id)
        case 8:
            return MemberAssignmentTombstone(group_id=at.group_id, member_id=at.member_id)
    return RegularExpressionTombstone(group_id=at.group_id, regex=at.regular_expression)


def _decoded(cls: type[Message], value: bytes) -> Any:
    return decoder(cls, _VALUE_VERSION, True)(value, 2)[0]


def _read_group(at: Any, value: bytes) -> ConsumerGroupRecord:
    held = _decoded(ConsumerGroupMetadataValue, value)
    return ConsumerGroupRecord(
        group_id=at.group_id, epoch=held.epoch, metadata_hash=held.metadata_hash
    )


def _read_member(at: Any, value: bytes) -> ConsumerMemberRecord:
    held = _decoded(ConsumerGroupMemberMetadataValue, value)
    classic = held.classic_member_metadata
    if classic is not None and not classic.supported_protocols:
        classic = None  # earlier versions did not write null
    return ConsumerMemberRecord(
        group_id=at.group_id,
        member_id=at.member_id,
        instance_id=held.instance_id,
        rack_id=held.rack_id,
        client_id=held.client_id,
        client_host=held.client_host,
        subscribed_topics=tuple(held.subscribed_topic_names),
        subscribed_regex=held.subscribed_topic_regex or None,
        rebalance_timeout_ms=held.rebalance_timeout_ms,
        server_assignor=held.server_assignor,
        classic=None
        if classic is None
        else ClassicMemberRecord(
            session_timeout_ms=classic.session_timeout_ms,
            protocols=tuple(
                ClassicProtocolRecord(each.name, each.metadata)
                for each in classic.supported_protocols
            ),
        ),
    )


def _read_target(at: Any, value: bytes) -> TargetAssignmentRecord:
    held = _decoded(ConsumerGroupTargetAssignmentMetadataValue, value)
    return TargetAssignmentRecord(
        group_id=at.group_id,
        assignment_epoch=held.assignment_epoch,
        assignment_ms=held.assignment_timestamp_ms,
    )


def _read_member_target(at: Any, value: bytes) -> MemberTargetRecord:
    held = _decoded(ConsumerGroupTargetAssignmentMemberValue, value)
    partitions: PartitionSet = {
        each.topic_id: tuple(sorted(each.partitions)) for each in held.topic_partitions
    }
    return MemberTargetRecord(group_id=at.group_id, member_id=at.member_id, partitions=partitions)


def _read_member_assignment(at: Any, value: bytes) -> MemberAssignmentRecord:
    held = _decoded(ConsumerGroupCurrentMemberAssignmentValue, value)
    known = {int(state) for state in ReconciliationState}
    state = held.state if held.state in known else ReconciliationState.UNKNOWN
    return MemberAssignmentRecord(
        group_id=at.group_id,
        member_id=at.member_id,
        member_epoch=held.member_epoch,
        previous_member_epoch=held.previous_member_epoch,
        state=ReconciliationState(state),
        assigned=_with_epochs(held.assigned_partitions, held.member_epoch),
        pending_revocation=_with_epochs(held.partitions_pending_revocation, held.member_epoch),
    )


def _with_epochs(topics: list[AssignedTopicPartitions], member_epoch: int) -> EpochedPartitions:
    partitions = {}
    for each in topics:
        epochs = each.assignment_epochs
        if epochs is None:
            epochs = [member_epoch] * len(each.partitions)
        elif len(epochs) != len(each.partitions):
            raise MalformedError(
                f"{len(each.partitions)} partitions have {len(epochs)} assignment epochs"
            )
        partitions[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return partitions


def _read_regex(at: Any, value: bytes) -> RegularExpressionRecord:
    held = _decoded(ConsumerGroupRegularExpressionValue, value)
    return RegularExpressionRecord(
        group_id=at.group_id,
        regex=at.regular_expression,
        topics=tuple(held.topics),
        version=held.version,
        resolved_ms=held.timestamp_ms,
    )


_READERS: Final[dict[int, Callable[[Any, bytes], ConsumerGroupRecords]]] = {
    _GROUP: _read_group,
    _MEMBER: _read_member,
    _TARGET: _read_target,
    _MEMBER_TARGET: _read_member_target,
    _MEMBER_ASSIGNMENT: _read_member_assignment,
    _REGEX: _read_regex,
}
