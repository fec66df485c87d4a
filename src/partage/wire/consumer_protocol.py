"""Subscriptions and assignments that consumers exchange through a group.

A consumer's metadata in JoinGroup is a `Subscription`, and its bytes from SyncGroup are an
`Assignment`. The coordinator reads neither. Subscription v1 adds owned partitions (KIP-429), v2 the
generation (KIP-792), v3 the rack (KIP-881). All versions of Assignment are the same. No version is
flexible.

Both begin with their version. A newer version only adds fields at the end, so a reader decodes the
fields it knows and ignores the rest.
"""

from __future__ import annotations

import struct
from typing import Annotated, Final, TypeVar

from partage.wire import codec
from partage.wire.primitives import MalformedError
from partage.wire.types import (
    Array,
    Buffer,
    Int32,
    Message,
    NullableBytes,
    NullableString,
    Since,
    String,
)

VERSION_MAX: Final = 3

M = TypeVar("M", bound=Message)


class ConsumerTopicPartitions(Message):
    """Partitions of one topic."""

    topic: String
    partitions: Array[Int32]


class Subscription(Message):
    """A consumer's topics and owned partitions. ``user_data`` belongs to its assignor.

    ``generation_id`` is the generation that assigned ``owned_partitions``, -1 if unknown.
    """

    topics: Array[String]
    user_data: NullableBytes = None
    owned_partitions: Annotated[Array[ConsumerTopicPartitions], Since(1)] = []  # noqa: RUF012
    generation_id: Annotated[Int32, Since(2)] = -1
    rack_id: Annotated[NullableString, Since(3)] = None


class Assignment(Message):
    """A consumer's assigned partitions. ``user_data`` belongs to the leader's assignor."""

    assigned_partitions: Array[ConsumerTopicPartitions]
    user_data: NullableBytes = None


def encode_subscription(subscription: Subscription, version: int = VERSION_MAX) -> bytes:
    """Encode the metadata for JoinGroup; fields that ``version`` lacks are left out.

    Raises:
        ValueError: ``version`` is not between 0 and 3.
    """
    return _encode(subscription, version)


def decode_subscription(buf: Buffer) -> Subscription:
    """Decode the subscription in a member's metadata.

    Raises:
        MalformedError: The bytes are not a subscription.
    """
    return _decode(Subscription, buf)


def encode_assignment(assignment: Assignment, version: int = VERSION_MAX) -> bytes:
    """Encode the assignment for SyncGroup.

    Raises:
        ValueError: ``version`` is not between 0 and 3.
    """
    return _encode(assignment, version)


def decode_assignment(buf: Buffer) -> Assignment:
    """Decode the assignment in a SyncGroup response.

    Raises:
        MalformedError: The bytes are not an assignment. Empty bytes are not one either: Kafka's
            coordinator sends them to a member for which the leader sent no assignment.
    """
    return _decode(Assignment, buf)


def _encode(message: Message, version: int) -> bytes:
    if not 0 <= version <= VERSION_MAX:
        raise ValueError(
            f"{type(message).__name__} version {version} is not between 0 and {VERSION_MAX}"
        )
    body = codec.encoder(type(message), version, False)(message)
    return b"".join((struct.pack(">h", version), *body))


def _decode(cls: type[M], buf: Buffer) -> M:
    if len(buf) < 2:
        raise MalformedError(f"{cls.__name__} of {len(buf)} bytes is too short for a version")
    version = int.from_bytes(buf[:2], "big", signed=True)
    if version < 0:
        raise MalformedError(f"{cls.__name__} has the invalid version {version}")
    message: M
    message, _ = codec.decoder(cls, min(version, VERSION_MAX), False)(buf, 2)
    return message
