"""The user data of Kafka's sticky assignors, byte for byte.

``sticky`` writes the partitions it owned and their generation. Its members have given up all
partitions when they join, so their subscriptions do not have them (KIP-54; KIP-341 added the
generation). ``cooperative-sticky`` writes only the generation: owned partitions are in the
subscription.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from partage.assignors.claims import OwnershipClaim
from partage.assignors.group_view import NO_GENERATION
from partage.wire import codec
from partage.wire.consumer_protocol import ConsumerTopicPartitions
from partage.wire.primitives import MalformedError
from partage.wire.types import Array, Int32, Message, Since

_KAFKA_PYTHON_HEADER = b"\0\1"
_COUNT: Final = struct.Struct(">i")
_GENERATION: Final = struct.Struct(">i")
#: The bytes of a topic before its partitions, without its name: the length of the name, the count.
_HEADER_BYTES: Final = 6
#: The general decoder also limits the elements, to a number that fewer bytes cannot have.
_USUAL_BYTES_MAX: Final = 1_000_000


class StickyUserData(Message):
    """Kafka's StickyAssignorUserData. It has no version field."""

    previous_assignment: Array[ConsumerTopicPartitions]
    generation: Annotated[Int32, Since(1)] = NO_GENERATION


def encode_sticky(owned: Mapping[str, Sequence[int]], generation: int) -> bytes:
    """Encode version 1, which has the generation."""
    previous = [
        ConsumerTopicPartitions(topic=topic, partitions=list(partitions))
        for topic, partitions in owned.items()
        if partitions
    ]
    message = StickyUserData(previous_assignment=previous, generation=generation)
    return b"".join(codec.encoder(StickyUserData, 1, False)(message))


def decode_sticky(data: bytes) -> OwnershipClaim:
    """Decode version 1, or version 0 if the data is too short for that.

    Invalid data gives an empty claim, as in Kafka. kafka-python prepends the version. Kafka reads
    that as an impossible number of topics; here it is recognised and skipped.
    """
    claim = _decode_sticky(data, (1, 0))
    if claim is None and data[:2] == _KAFKA_PYTHON_HEADER:
        claim = _decode_sticky(data[2:], (1,))
    return claim or OwnershipClaim(NO_GENERATION, {})


class StickyDecoder:
    """Decodes the user data of the ``sticky`` members of one group.

    Most members have the same topics and counts of partitions. So the decoder looks up the bytes of
    a topic and its count, and leaves everything unusual to `decode_sticky`.
    """

    def __init__(self) -> None:
        #: By the bytes of a topic and its count: the topic, and the structure of its partitions.
        self._headers: dict[bytes, tuple[str, struct.Struct]] = {}

    def decode(self, data: bytes) -> OwnershipClaim:
        """Return the same claim as `decode_sticky`, whatever the type of its sequences."""
        if not data:  # A new member
            return OwnershipClaim(NO_GENERATION, {})
        if not _GENERATION.size < len(data) <= _USUAL_BYTES_MAX:
            return decode_sticky(data)
        headers = self._headers
        owned: dict[str, tuple[int, ...]] = {}
        (count,) = _COUNT.unpack_from(data)
        position = _COUNT.size
        try:
            for _ in range(count):
                begin, position = position, position + _HEADER_BYTES + data[position + 1]
                found = headers.get(data[begin:position])
                if found is None:
                    found = self._add_header(data, begin, position)
                topic, partitions = found
                owned[topic] = partitions.unpack_from(data, position)
                position += partitions.size
        except (IndexError, ValueError, struct.error):
            return decode_sticky(data)
        # A topic may be there twice, and there may be no generation.
        if len(owned) != count or len(data) != position + _GENERATION.size:
            return decode_sticky(data)
        return OwnershipClaim(_GENERATION.unpack_from(data, position)[0], owned)

    def _add_header(self, data: bytes, begin: int, end: int) -> tuple[str, struct.Struct]:
        """Store the header of a topic.

        Raises:
            ValueError: The name is too long for a topic, or it is not UTF-8.
            struct.error: The count is negative or incomplete.
        """
        if data[begin]:
            raise ValueError("name of 256 bytes or more")
        (count,) = _COUNT.unpack_from(data, end - _COUNT.size)
        topic = str(data[begin + 2 : end - _COUNT.size], "utf-8")
        found = topic, struct.Struct(f">{count}i")
        self._headers[data[begin:end]] = found
        return found


def _decode_sticky(data: bytes, versions: Sequence[int]) -> OwnershipClaim | None:
    for version in versions:
        try:
            message, _ = codec.decoder(StickyUserData, version, False)(data, 0)
        except MalformedError:
            continue
        owned: dict[str, list[int]] = {}
        for of_topic in message.previous_assignment:
            owned.setdefault(of_topic.topic, []).extend(of_topic.partitions)
        return OwnershipClaim(message.generation, owned)
    return None


def encode_generation(generation: int) -> bytes:
    """Encode the user data of ``cooperative-sticky``."""
    return struct.pack(">i", generation)


def decode_generation(data: bytes) -> int:
    """Decode the user data of ``cooperative-sticky``; -1 if it has no generation."""
    generation: int = struct.unpack_from(">i", data)[0] if len(data) >= 4 else NO_GENERATION
    return generation
