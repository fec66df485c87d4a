"""The actions that only members with the consumer group protocol have."""

from __future__ import annotations

from collections.abc import Mapping

from partage.member.outcome import Action

#: Member epochs of the requests that join and leave.
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


class SendConsumerHeartbeat(Action, frozen=True, gc=False, kw_only=True):
    """Send ConsumerGroupHeartbeat, answered by `ConsumerHeartbeatResponseReceived`.

    None and -1 mean "unchanged since the last accepted heartbeat". ``owned`` has the partition
    numbers by topic id. An empty ``subscribed_regex`` removes the regular expression.
    """

    serial: int
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topics: tuple[str, ...] | None = None
    subscribed_regex: str | None = None
    server_assignor: str | None = None
    owned: Mapping[bytes, tuple[int, ...]] | None = None


class ResolveTopicIds(Action, frozen=True, gc=False, kw_only=True):
    """Look up the names of topics in current metadata, then `TopicIdsResolved`.

    A later action of this kind replaces an earlier one.
    """

    serial: int
    topic_ids: tuple[bytes, ...]
