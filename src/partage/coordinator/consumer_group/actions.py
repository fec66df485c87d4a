"""Work that a consumer group asks the shell to do off the event loop."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from partage.coordinator.consumer_group.events import TopicImage
from partage.coordinator.consumer_group.partitions import PartitionSet, TopicId


class AssignableMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member as an assignor sees it.

    ``target`` is its part of the previous target assignment. It is no longer limited to the topics
    to which the member subscribes now.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    subscribed_topic_ids: frozenset[TopicId]
    target: PartitionSet = {}


class ComputeTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Run an assignor, validate its result, and send a `TargetComputed` to the shard.

    The shell sends exactly one `TargetComputed` for each action, also if the assignor fails or
    exceeds its time limit. A group has at most one computation under way.

    Attributes:
        group_id: The group.
        sequence: The number of the action in its shard, which the result repeats.
        group_epoch: The epoch for which the target is computed.
        assignor: The name of the assignor.
        members: The members by id.
        topics: The existing topics to which any member subscribes, by id.
        is_homogeneous: True if all members subscribe to the same topics.
    """

    group_id: str
    sequence: int
    group_epoch: int
    assignor: str
    members: Mapping[str, AssignableMember]
    topics: Mapping[TopicId, TopicImage]
    is_homogeneous: bool


class ResolveRegexes(msgspec.Struct, frozen=True, kw_only=True):
    """Match regular expressions (RE2, whole name) against all topics, and send `RegexesResolved`.

    The shell may do it later or at once, but exactly once. As in Kafka, internal topics match too.
    The result repeats ``sequence``, the number of the action in its shard.
    """

    group_id: str
    sequence: int
    regexes: frozenset[str]


Action = ComputeTarget | ResolveRegexes
