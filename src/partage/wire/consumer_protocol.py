"""What consumers hand each other through a group: their subscriptions and assignments.

A consumer's metadata in JoinGroup is a `Subscription`, its bytes from SyncGroup an `Assignment`;
the coordinator reads neither. Subscription v1 owned partitions (KIP-429); v2 generation
(KIP-792); v3 rack (KIP-881). Assignment is the same in all its versions. Never flexible.

Both begin with their version. A newer version only ever adds fields at the end, so a reader takes
what it knows and leaves the rest.
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
    """What a consumer wants and has; ``user_data`` is its assignor's own.

    ``generation_id`` is the one in which it got ``owned_partitions``, -1 if it does not say.
    """

    topics: Array[String]
    user_data: NullableBytes = None
    owned_partitions: Annotated[Array[ConsumerTopicPartitions], Since(1)] = []  # noqa: RUF012
    generation_id: Annotated[Int32, Since(2)] = -1
    rack_id: Annotated[NullableString, Since(3)] = None


class Assignment(Message):
    """What a consumer is to read; ``user_data`` is the leader's assignor's own."""

    assigned_partitions: Array[ConsumerTopicPartitions]
    user_data: NullableBytes = None


def encode_subscription(subscription: Subscription, version: int = VERSION_MAX) -> bytes:
    """The bytes for JoinGroup; fields that ``version`` lacks are left out.

    Raises:
        ValueError: ``version`` is not 0 to 3.
    """
    return _encode(subscription, version)


def decode_subscription(buf: Buffer) -> Subscription:
    """The subscription in a member's metadata.

    Raises:
        Malformed: the bytes are no subscription.
    """
    return _decode(Subscription, buf)


def encode_assignment(assignment: Assignment, version: int = VERSION_MAX) -> bytes:
    """The bytes for SyncGroup.

    Raises:
        ValueError: ``version`` is not 0 to 3.
    """
    return _encode(assignment, version)


def decode_assignment(buf: Buffer) -> Assignment:
    """The assignment in a SyncGroup response.

    Raises:
        Malformed: the bytes are no assignment. No bytes at all are none: Kafka's coordinator sends
            them to a member for whom the leader brought nothing.
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
