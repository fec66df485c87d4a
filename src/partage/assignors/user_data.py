"""What assignors write into their members' user data, byte for byte as Kafka's do.

``sticky`` writes what it owned and since when: its members have given everything up by the time
they join, so that their subscriptions say nothing of it (KIP-54; the generation came with KIP-341).
``cooperative-sticky`` writes only the generation; what a member owns is in its subscription.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Annotated

from partage.assignors.base import NO_GENERATION
from partage.assignors.claims import Claim
from partage.wire import codec
from partage.wire.consumer_protocol import TopicPartitions
from partage.wire.primitives import Malformed
from partage.wire.types import Array, Int32, Message, Since

_KAFKA_PYTHON_HEADER = b"\0\1"


class StickyUserData(Message):
    """Kafka's StickyAssignorUserData; it does not say which version it is."""

    previous_assignment: Array[TopicPartitions]
    generation: Annotated[Int32, Since(1)] = NO_GENERATION


def encode_sticky(owned: Mapping[str, Sequence[int]], generation: int) -> bytes:
    """Version 1, which has the generation."""
    previous = [
        TopicPartitions(topic=topic, partitions=list(partitions))
        for topic, partitions in owned.items()
        if partitions
    ]
    message = StickyUserData(previous_assignment=previous, generation=generation)
    return b"".join(codec.encoder(StickyUserData, 1, False)(message))


def decode_sticky(data: bytes) -> Claim:
    """Version 1, or 0 if it is too short for that; nothing if it is neither, as Kafka has it.

    kafka-python puts the version before it, which Kafka then takes for a number of topics that
    cannot be; here it is read as it was meant.
    """
    claim = _decode_sticky(data, (1, 0))
    if claim is None and data[:2] == _KAFKA_PYTHON_HEADER:
        claim = _decode_sticky(data[2:], (1,))
    return claim or Claim(NO_GENERATION, {})


def _decode_sticky(data: bytes, versions: Sequence[int]) -> Claim | None:
    for version in versions:
        try:
            message, _ = codec.decoder(StickyUserData, version, False)(data, 0)
        except Malformed:
            continue
        owned: dict[str, list[int]] = {}
        for of_topic in message.previous_assignment:
            owned.setdefault(of_topic.topic, []).extend(of_topic.partitions)
        return Claim(message.generation, owned)
    return None


def encode_generation(generation: int) -> bytes:
    """The user data of ``cooperative-sticky``."""
    return struct.pack(">i", generation)


def decode_generation(data: bytes) -> int:
    """-1 where there is none."""
    generation: int = struct.unpack_from(">i", data)[0] if len(data) >= 4 else NO_GENERATION
    return generation
