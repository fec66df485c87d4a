"""Events that consumer groups handle, besides those they share with classic groups."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from partage.coordinator.consumer_group.partitions import PartitionSet, TopicId
from partage.coordinator.events import Event, GroupRequest


class ConsumerGroupHeartbeat(GroupRequest, frozen=True, kw_only=True):
    """ConsumerGroupHeartbeat (KIP-848). None means "unchanged since the last heartbeat".

    ``member_epoch`` is 0 to join, -1 to leave, and -2 for a static member that leaves for a while.
    """

    member_id: str  # empty only in v0
    generated_member_id: str  # the id to assign if the client sends none
    may_generate_id: bool = False  # v0: the broker makes the ids of new members
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int = -1  # -1 means unchanged
    subscribed_topics: tuple[str, ...] | None = None
    subscribed_regex: str | None = None  # empty removes the regex
    regex_error: str | None = None  # the reason why the regex is invalid RE2, from the bridge
    server_assignor: str | None = None
    owned: PartitionSet | None = None
    original: ConsumerGroupHeartbeat | None = None  # the first of repeated heartbeats


class RepeatedHeartbeat(GroupRequest, frozen=True, kw_only=True):
    """A ConsumerGroupHeartbeat whose request a client has sent before, in few fields.

    `Driver.answer` accepts it, and asks `Shard.heartbeat_effects`. If the heartbeat may change
    something, `Shard.handle` gets the complete event. It does not accept this one.

    Attributes:
        original: The event of the first request. All repetitions have the same object. It has no
            ticket, because tickets refer to connections.
    """

    original: ConsumerGroupHeartbeat

    def complete(self) -> ConsumerGroupHeartbeat:
        """Return the event with all fields."""
        return msgspec.structs.replace(
            self.original, at_ms=self.at_ms, reply_to=self.reply_to, original=self.original
        )


class DescribeConsumerGroup(GroupRequest, frozen=True, kw_only=True):
    """ConsumerGroupDescribe, for one group."""


class TargetComputed(Event, frozen=True, gc=False, kw_only=True):
    """An assignor finished: the reply of the shell to a `ComputeTarget`.

    Attributes:
        group_id: The group.
        sequence: The sequence number of the `ComputeTarget`.
        group_epoch: The epoch of the `ComputeTarget`.
        target: The validated partitions of each member, sorted and without empty topics; None if
            the assignor failed. For an unchanged member, it is best the same object as before.
        error: The reason of a failure; empty after a success.
    """

    group_id: str
    sequence: int
    group_epoch: int
    target: Mapping[str, PartitionSet] | None
    error: str = ""


class RegexesResolved(Event, frozen=True, gc=False, kw_only=True):
    """Regular expressions were matched: the reply of the shell to a `ResolveRegexes`.

    Attributes:
        group_id: The group.
        sequence: The sequence number of the `ResolveRegexes`.
        topics: The names of the matching topics for each regular expression; None if the resolution
            failed or exceeded its time limit.
        version: The version of the `TopicsChanged` against which they were matched.
    """

    group_id: str
    sequence: int
    topics: Mapping[str, frozenset[str]] | None
    version: int


class TopicImage(msgspec.Struct, frozen=True, kw_only=True):
    """A topic of the catalogue.

    ``racks`` are the racks of the replicas of each partition, in order; empty if no broker has a
    rack.
    """

    topic_id: TopicId
    name: str
    partition_count: int
    racks: tuple[frozenset[str], ...] = ()


class TopicsChanged(Event, frozen=True, gc=False, kw_only=True):
    """The catalogue of topics is available or has changed.

    The shell sends it before a loaded shard resumes, and after each change. Until the first one,
    consumer group heartbeats get COORDINATOR_LOAD_IN_PROGRESS.

    Attributes:
        topics: All topics by name. The shard keeps the mapping; the shell must not change it, but
            can share it between shards and keep the same `TopicImage` of an unchanged topic.
        version: A number that grows with each change.
    """

    topics: Mapping[str, TopicImage]
    version: int


class GroupConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configs of one group (resource type GROUP); times in ms.

    None means the broker's default, or for ``assignor`` that the votes of the members decide.
    """

    session_timeout_ms: int | None = None  # consumer.session.timeout.ms
    heartbeat_interval_ms: int | None = None  # consumer.heartbeat.interval.ms
    assignment_interval_ms: int | None = None  # consumer.assignment.interval.ms
    assignor: str | None = None  # consumer.assignor.name


class GroupConfigsChanged(Event, frozen=True, gc=False, kw_only=True):
    """Configs of groups are available or have changed.

    ``configs`` are those of all groups that have any, by group id; groups of other shards may be
    included. The shell sends it before a loaded shard resumes, because sessions start then, and
    after each change. ``assignment_interval_ms`` is the broker's default, which clients can alter
    while the broker runs; None means that of its settings.
    """

    configs: Mapping[str, GroupConfig]
    assignment_interval_ms: int | None = None
