"""Kafka's formats of the subscriptions and assignments that a coordinator reads and writes."""

from __future__ import annotations

from partage.coordinator.consumer_group.embedded_protocol import (
    ClassicAssignment,
    ClassicSubscription,
    TopicPartitions,
)
from partage.wire.consumer_protocol import (
    VERSION_MAX,
    Assignment,
    ConsumerTopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from partage.wire.primitives import MalformedError


class KafkaEmbeddedProtocol:
    """Subscriptions and assignments in Kafka's formats, in every version."""

    def decode_subscription(self, metadata: bytes) -> ClassicSubscription | None:
        """Return the subscription; None if the bytes are no subscription."""
        try:
            decoded = decode_subscription(metadata)
        except MalformedError:
            return None
        return ClassicSubscription(
            topics=tuple(sorted(set(decoded.topics))),
            owned=_by_topic(decoded.owned_partitions),
            generation=decoded.generation_id,
            rack_id=decoded.rack_id or None,
        )

    def decode_assignment(self, assignment: bytes) -> ClassicAssignment | None:
        """Return the assignment, which is empty for no bytes; None if the bytes are no
        assignment.
        """
        if not assignment:
            return ClassicAssignment(partitions={})
        try:
            decoded = decode_assignment(assignment)
        except MalformedError:
            return None
        return ClassicAssignment(
            partitions=_by_topic(decoded.assigned_partitions),
            has_user_data=bool(decoded.user_data),
        )

    def encode_assignment(self, partitions: TopicPartitions, metadata: bytes) -> bytes:
        """Return an assignment in the version of the member's metadata."""
        version = int.from_bytes(metadata[:2], "big", signed=True)
        assignment = Assignment(
            assigned_partitions=[
                ConsumerTopicPartitions(topic=topic, partitions=list(numbers))
                for topic, numbers in sorted(partitions.items())
            ]
        )
        return encode_assignment(assignment, min(max(version, 0), VERSION_MAX))


def _by_topic(listed: list[ConsumerTopicPartitions]) -> dict[str, tuple[int, ...]]:
    by_topic: dict[str, set[int]] = {}
    for each in listed:
        by_topic.setdefault(each.topic, set()).update(each.partitions)
    return {topic: tuple(sorted(numbers)) for topic, numbers in by_topic.items()}
