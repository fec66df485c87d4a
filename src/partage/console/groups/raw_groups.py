"""Groups with the classic protocol: the bytes of their members, and what can be read from them."""

from __future__ import annotations

from typing import Final, NamedTuple

from partage.model.groups import GroupDescription, MemberDescription, Node, TopicPartitions
from partage.wire.consumer_protocol import Subscription, decode_assignment, decode_subscription
from partage.wire.primitives import MalformedError

CONSUMER: Final = "consumer"
UNKNOWN: Final = "Unknown"


class RawMember(NamedTuple):
    """A member; ``metadata`` and ``assignment`` are bytes that depend on the protocol type."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    metadata: bytes
    assignment: bytes


class RawGroup(NamedTuple):
    """A group; ``is_described`` is False if a broker listed the group but did not describe it."""

    is_described: bool
    state: str
    protocol_type: str
    protocol: str
    coordinator: Node | None
    members: list[RawMember]


def describe_raw(name: str, raw: RawGroup) -> GroupDescription:
    """Return the description of a classic group, without offsets."""
    is_consumer = raw.protocol_type == CONSUMER
    return GroupDescription(
        group=name,
        protocol_type=raw.protocol_type or None,
        type="Classic" if raw.is_described else None,
        protocol=raw.protocol or None,
        state=raw.state if raw.is_described else UNKNOWN,
        coordinator=raw.coordinator,
        members=[_member(each, is_consumer) for each in raw.members],
        offsets=[],
        total_lag=0,
    )


def _member(raw: RawMember, is_consumer: bool) -> MemberDescription:
    subscription = _subscription(raw.metadata) if is_consumer else None
    return MemberDescription(
        member_id=raw.member_id,
        group_instance_id=raw.instance_id,
        client_id=raw.client_id,
        host=raw.host,
        partitions=_partitions(raw.assignment) if is_consumer else [],
        subscription=None if subscription is None else sorted(subscription.topics),
        metadata_bytes=len(raw.metadata),
        assignment_bytes=len(raw.assignment),
        rack=None if subscription is None else subscription.rack_id,
    )


def _subscription(metadata: bytes) -> Subscription | None:
    try:
        return decode_subscription(metadata)
    except MalformedError:
        return None


def _partitions(assignment: bytes) -> list[TopicPartitions]:
    """Return the assigned partitions; none if the bytes are empty or cannot be decoded."""
    if not assignment:
        return []
    try:
        assigned = decode_assignment(assignment).assigned_partitions
    except MalformedError:
        return []
    by_topic: dict[str, set[int]] = {}
    for each in assigned:
        by_topic.setdefault(each.topic, set()).update(each.partitions)
    return [TopicPartitions(topic, sorted(numbers)) for topic, numbers in sorted(by_topic.items())]
