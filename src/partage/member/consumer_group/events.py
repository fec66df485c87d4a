"""The events that only members with the consumer group protocol have."""

from __future__ import annotations

from collections.abc import Mapping

from partage.member.events import CoordinatorResponse, Event


class ConsumerHeartbeatResponseReceived(CoordinatorResponse, frozen=True, gc=False, kw_only=True):
    """The ConsumerGroupHeartbeat response.

    ``assignment`` has the partition numbers by topic id; it is None if it is unchanged.
    """

    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Mapping[bytes, tuple[int, ...]] | None = None


class TopicIdsResolved(Event, frozen=True, gc=False, kw_only=True):
    """`ResolveTopicIds` is done: the names of the topics that the metadata contains, by id."""

    serial: int
    names: Mapping[bytes, str]
