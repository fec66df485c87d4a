"""Subscriptions and assignments of other clients and of ours."""

from __future__ import annotations

import io
import struct
import warnings
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from partage.wire.consumer_protocol import (
    Assignment,
    ConsumerTopicPartitions,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from partage.wire.primitives import MalformedError

from .random_messages import MessageFactory
from .test_properties import damaged

with warnings.catch_warnings():
    # kafka-python reads its definitions through a deprecated function.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.consumer.metadata as kafka_python

import kio.schema.consumer_protocol_assignment as kio_assignments
import kio.schema.consumer_protocol_subscription as kio_subscriptions
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from kio.serial import entity_reader, entity_writer

VERSIONS = [0, 1, 2, 3]

SUBSCRIPTION = Subscription(
    topics=["a", "bc"],
    user_data=b"\x01\x02",
    owned_partitions=[ConsumerTopicPartitions(topic="a", partitions=[0, 3])],
    generation_id=5,
    rack_id="r1",
)
BODY_V0 = b"\x00\x00\x00\x02" + b"\x00\x01a" + b"\x00\x02bc" + b"\x00\x00\x00\x02\x01\x02"
OWNED = b"\x00\x00\x00\x01" + b"\x00\x01a" + b"\x00\x00\x00\x02" + struct.pack(">ii", 0, 3)
BYTES = {
    0: b"\x00\x00" + BODY_V0,
    1: b"\x00\x01" + BODY_V0 + OWNED,
    2: b"\x00\x02" + BODY_V0 + OWNED + b"\x00\x00\x00\x05",
    3: b"\x00\x03" + BODY_V0 + OWNED + b"\x00\x00\x00\x05" + b"\x00\x02r1",
}

ASSIGNMENT = Assignment(
    assigned_partitions=[
        ConsumerTopicPartitions(topic="a", partitions=[1]),
        ConsumerTopicPartitions(topic="bc", partitions=[]),
    ]
)
ASSIGNMENT_BODY = (
    b"\x00\x00\x00\x02"
    + (b"\x00\x01a" + b"\x00\x00\x00\x01" + b"\x00\x00\x00\x01")
    + (b"\x00\x02bc" + b"\x00\x00\x00\x00")
    + b"\xff\xff\xff\xff"
)


def known_to(subscription: Subscription, version: int) -> Subscription:
    """Return a subscription without the fields that an older version lacks."""
    owned = subscription.owned_partitions
    return Subscription(
        topics=subscription.topics,
        user_data=subscription.user_data,
        owned_partitions=owned if version >= 1 else [],
        generation_id=subscription.generation_id if version >= 2 else -1,
        rack_id=subscription.rack_id if version >= 3 else None,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_subscription_encoding_by_hand(version: int) -> None:
    assert encode_subscription(SUBSCRIPTION, version) == BYTES[version]
    assert decode_subscription(BYTES[version]) == known_to(SUBSCRIPTION, version)
    assert decode_subscription(memoryview(BYTES[version])) == known_to(SUBSCRIPTION, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_assignment_encoding_by_hand(version: int) -> None:
    raw = struct.pack(">h", version) + ASSIGNMENT_BODY
    assert encode_assignment(ASSIGNMENT, version) == raw
    assert decode_assignment(raw) == ASSIGNMENT


def test_newest_version_is_encoded_by_default() -> None:
    assert encode_subscription(SUBSCRIPTION) == BYTES[3]
    assert encode_assignment(ASSIGNMENT).startswith(b"\x00\x03")


@pytest.mark.parametrize("version", [4, 100, 2**15 - 1])
def test_known_fields_of_newer_version_are_decoded(version: int) -> None:
    head = struct.pack(">h", version)
    assert decode_subscription(head + BYTES[3][2:] + b"more") == SUBSCRIPTION
    assert decode_assignment(head + ASSIGNMENT_BODY + b"more") == ASSIGNMENT


@pytest.mark.parametrize("version", [-1, 4])
def test_unsupported_version_is_not_encoded(version: int) -> None:
    with pytest.raises(ValueError, match=f"version {version} is not between 0 and 3"):
        encode_subscription(SUBSCRIPTION, version)
    with pytest.raises(ValueError, match=f"version {version} is not between 0 and 3"):
        encode_assignment(ASSIGNMENT, version)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00",
        b"\x00\x00",
        b"\xff\xff" + BODY_V0,  # version -1
        b"\x00\x01" + BODY_V0,  # v1 without owned partitions
        b"\x00\x00" + b"\x7f\xff\xff\xff",
        b"\x00\x00" + b"\xff\xff\xff\xff" + bytes(20),  # null topics
        b"worker-7:8083",
    ],
)
def test_invalid_bytes_are_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedError):
        decode_subscription(raw)


@pytest.mark.parametrize("version", VERSIONS)
def test_truncated_or_damaged_bytes_are_malformed_or_a_message(version: int) -> None:
    raw = encode_subscription(SUBSCRIPTION, version)
    for length in range(len(raw)):
        with pytest.raises(MalformedError):
            decode_subscription(raw[:length])
    rng = Random(version)
    decoders: list[Callable[[bytes], object]] = [decode_subscription, decode_assignment]
    for _ in range(300):
        for decode in decoders:
            try:
                decode(damaged(raw, rng))
            except MalformedError:
                continue


# Other implementations


def pairs(partitions: list[ConsumerTopicPartitions]) -> list[tuple[str, list[int]]]:
    return [(each.topic, each.partitions) for each in partitions]


def arbitrary(cls: type[Any], version: int) -> Any:
    return MessageFactory(Random(f"{cls.__name__} {version}")).message(cls, version, False)


@pytest.mark.parametrize("version", VERSIONS)
def test_kafka_python_subscriptions(version: int) -> None:
    ours = arbitrary(Subscription, version)
    read = kafka_python.ConsumerProtocolSubscription.decode(encode_subscription(ours, version))
    assert (read.topics, read.user_data) == (ours.topics, ours.user_data)
    owned = [(each.topic, each.partitions) for each in read.owned_partitions]
    assert owned == pairs(ours.owned_partitions)
    assert (read.generation_id, read.rack_id) == (ours.generation_id, ours.rack_id)
    assert read.encode() == encode_subscription(ours, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_kafka_python_assignments(version: int) -> None:
    ours = arbitrary(Assignment, version)
    read = kafka_python.ConsumerProtocolAssignment.decode(encode_assignment(ours, version))
    assigned = [(each.topic, each.partitions) for each in read.assigned_partitions]
    assert (assigned, read.user_data) == (pairs(ours.assigned_partitions), ours.user_data)
    assert decode_assignment(read.encode()) == ours


@pytest.mark.parametrize("version", VERSIONS)
def test_kio_subscriptions(version: int) -> None:
    ours = arbitrary(Subscription, version)
    entity = kio_entity(kio_subscriptions, version, "ConsumerProtocolSubscription")
    raw = encode_subscription(ours, version)
    read, size = entity_reader(entity)(raw, 2)
    assert size == len(raw) - 2
    assert (list(read.topics), read.user_data) == (ours.topics, ours.user_data)
    out = io.BytesIO()
    entity_writer(entity)(out, read)
    assert decode_subscription(raw[:2] + out.getvalue()) == ours


@pytest.mark.parametrize("version", VERSIONS)
def test_kio_assignments(version: int) -> None:
    ours = arbitrary(Assignment, version)
    entity = kio_entity(kio_assignments, version, "ConsumerProtocolAssignment")
    raw = encode_assignment(ours, version)
    read, size = entity_reader(entity)(raw, 2)
    assert size == len(raw) - 2
    out = io.BytesIO()
    entity_writer(entity)(out, read)
    assert decode_assignment(raw[:2] + out.getvalue()) == ours


def kio_entity(package: Any, version: int, name: str) -> Any:
    module = __import__(f"{package.__name__}.v{version}.data", fromlist=[name])
    return getattr(module, name)


def test_aiokafka_subscriptions() -> None:
    theirs = ConsumerProtocolMemberMetadata(0, ["a", "bc"], b"\x01\x02").encode()
    assert decode_subscription(theirs) == known_to(SUBSCRIPTION, 0)
    read = ConsumerProtocolMemberMetadata.decode(encode_subscription(SUBSCRIPTION))
    assert (read.subscription, read.user_data) == (["a", "bc"], b"\x01\x02")


def test_aiokafka_assignments() -> None:
    theirs = ConsumerProtocolMemberAssignment(0, [("a", [1]), ("bc", [])], None).encode()
    assert decode_assignment(theirs) == ASSIGNMENT
    read = ConsumerProtocolMemberAssignment.decode(encode_assignment(ASSIGNMENT))
    assert list(read.assignment) == [("a", [1]), ("bc", [])]
