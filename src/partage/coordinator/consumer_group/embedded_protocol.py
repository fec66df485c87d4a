"""The bytes in which consumers with the classic protocol exchange subscriptions and assignments.

The coordinator does not parse them itself: the owner of the shard provides an `EmbeddedProtocol`.
Only groups that have members of both protocols, or that change their protocol, need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

#: The protocol type of consumers, whose metadata are subscriptions.
CONSUMER_PROTOCOL_TYPE: Final = "consumer"

#: Partitions by topic name.
TopicPartitions = Mapping[str, tuple[int, ...]]


class ClassicSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """The subscription in a member's metadata.

    ``generation`` is the generation that assigned ``owned``; -1 if unknown.
    """

    topics: tuple[str, ...]
    owned: TopicPartitions = {}
    generation: int = -1
    rack_id: str | None = None


class ClassicAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """An assignment that a leader sent. User data belongs to the leader's assignor."""

    partitions: TopicPartitions
    has_user_data: bool = False


class EmbeddedProtocol(Protocol):
    """Reads subscriptions and assignments, and writes assignments."""

    def decode_subscription(self, metadata: bytes) -> ClassicSubscription | None:
        """Return the subscription; None if the bytes are no subscription."""

    def decode_assignment(self, assignment: bytes) -> ClassicAssignment | None:
        """Return the assignment, which is empty for no bytes; None if the bytes are no
        assignment.
        """

    def encode_assignment(self, partitions: TopicPartitions, metadata: bytes) -> bytes:
        """Return an assignment in the version of the member's metadata."""


class NoEmbeddedProtocol:
    """A shard without the formats: it refuses members of both protocols in one group."""

    def decode_subscription(self, metadata: bytes) -> ClassicSubscription | None:
        """Return None."""

    def decode_assignment(self, assignment: bytes) -> ClassicAssignment | None:
        """Return None."""

    def encode_assignment(self, partitions: TopicPartitions, metadata: bytes) -> bytes:
        """Return no bytes."""
        return b""
