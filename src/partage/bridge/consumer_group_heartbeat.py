"""Adapter of ConsumerGroupHeartbeat."""

from __future__ import annotations

from partage.bridge.api_adapter import ApiAdapter, ApiCall, limit_text
from partage.bridge.topic_regex import check_regex
from partage.coordinator.consumer_group.events import ConsumerGroupHeartbeat
from partage.coordinator.consumer_group.partitions import PartitionSet
from partage.coordinator.consumer_group.replies import ConsumerGroupHeartbeatReply
from partage.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupTopicPartitions,
)


def to_events(call: ApiCall[ConsumerGroupHeartbeatRequest]) -> list[ConsumerGroupHeartbeat]:
    """Return one event. Only clients of v0 let the broker generate their member ids."""
    request = call.message
    topics, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    owned = request.topic_partitions
    return [
        ConsumerGroupHeartbeat(
            at_ms=call.at_ms,
            reply_to=call.ticket,
            group_id=request.group_id,
            member_id=request.member_id,
            generated_member_id=call.fresh_id,
            may_generate_id=call.version == 0,
            member_epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            client_id=call.client_id,
            client_host=call.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            subscribed_topics=None if topics is None else tuple(sorted(set(topics))),
            subscribed_regex=regex,
            regex_error=check_regex(regex) if regex else None,
            server_assignor=request.server_assignor,
            owned=None if owned is None else _partition_set(owned),
        )
    ]


def _partition_set(topics: list[ConsumerGroupTopicPartitions]) -> PartitionSet:
    found: dict[bytes, set[int]] = {}
    for topic in topics:
        if topic.partitions:
            found.setdefault(topic.topic_id, set()).update(topic.partitions)
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in found.items()}


def to_response(
    call: ApiCall[ConsumerGroupHeartbeatRequest], replies: list[ConsumerGroupHeartbeatReply]
) -> ConsumerGroupHeartbeatResponse:
    """Return the response. Its assignment is null if it has not changed."""
    (reply,) = replies
    assignment = reply.assignment
    return ConsumerGroupHeartbeatResponse(
        error_code=reply.error,
        error_message=limit_text(reply.error_message),
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=None
        if assignment is None
        else ConsumerGroupAssignment(
            topic_partitions=[
                ConsumerGroupTopicPartitions(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in assignment.items()
            ]
        ),
    )


CONSUMER_GROUP_HEARTBEAT_ADAPTER = ApiAdapter(CONSUMER_GROUP_HEARTBEAT, to_events, to_response)
