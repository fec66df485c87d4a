"""DescribeTopicPartitions: topics with their partitions, in pages."""

from __future__ import annotations

from typing import Final

from partage.broker.cluster.cluster_view import ClusterView
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.topics.log_manager import LocalTopic, LogManager
from partage.log.catalogue.topic_catalogue import TopicDefinition
from partage.model.errors import ErrorCode
from partage.wire.apis.common import TOPIC_OPERATIONS
from partage.wire.apis.describe_topic_partitions import (
    DescribedTopic,
    DescribedTopicPartition,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicPartitionsCursor,
)

#: Kafka's default of ``max.request.partition.size.limit``.
_PAGE_PARTITIONS_MAX: Final = 2000


def describe_topic_partitions(
    inbound: InboundRequest, log_manager: LogManager, cluster_view: ClusterView
) -> None:
    """Respond with a page of the requested topics, or of all topics, sorted by name.

    A partition has one replica, so no other replica is eligible as leader (KIP-966).
    """
    request: DescribeTopicPartitionsRequest = inbound.message
    requested = {topic.name for topic in request.topics}
    cursor = request.cursor
    if cursor is not None and (
        cursor.partition_index < 0 or (requested and cursor.topic_name not in requested)
    ):
        refused = [_without_partitions(name, ErrorCode.INVALID_REQUEST) for name in requested]
        inbound.respond(DescribeTopicPartitionsResponse(topics=refused))
        return
    names = sorted(requested or (topic.name for topic in log_manager.topics()))
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    room = min(max(request.response_partition_limit, 1), _PAGE_PARTITIONS_MAX)
    described: list[DescribedTopic] = []
    next_cursor = None
    for name in names:
        if room == 0:
            next_cursor = TopicPartitionsCursor(topic_name=name, partition_index=0)
            break
        topic = log_manager.topic(name)
        if topic is None:
            described.append(_unknown_topic(name, log_manager))
            continue
        is_first = cursor is not None and name == cursor.topic_name
        start = cursor.partition_index if cursor is not None and is_first else 0
        end = min(topic.partition_count, start + room)
        described.append(_describe(topic, range(start, end), cluster_view))
        room -= max(end - start, 0)
        if end < topic.partition_count:
            next_cursor = TopicPartitionsCursor(topic_name=name, partition_index=end)
            break
    inbound.respond(DescribeTopicPartitionsResponse(topics=described, next_cursor=next_cursor))


def _without_partitions(name: str, error: ErrorCode) -> DescribedTopic:
    return DescribedTopic(error_code=error, name=name, partitions=[])


def _unknown_topic(name: str, log_manager: LogManager) -> DescribedTopic:
    refusal = log_manager.check_name(name)
    topic = _without_partitions(
        name, refusal.code if refusal else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    topic.is_internal = log_manager.is_internal(name)
    topic.topic_authorized_operations = TOPIC_OPERATIONS
    return topic


def _describe(topic: LocalTopic, indexes: range, cluster_view: ClusterView) -> DescribedTopic:
    return DescribedTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic.topic_id,
        is_internal=topic.topic.is_internal,
        partitions=[_describe_partition(topic.topic, index, cluster_view) for index in indexes],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _describe_partition(
    topic: TopicDefinition, index: int, cluster_view: ClusterView
) -> DescribedTopicPartition:
    holder = cluster_view.broker_of(topic, index)
    is_up = cluster_view.is_up(holder)
    return DescribedTopicPartition(
        error_code=ErrorCode.NONE if is_up else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=holder if is_up else -1,
        leader_epoch=0,
        replica_nodes=[holder],
        isr_nodes=[holder] if is_up else [],
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[] if is_up else [holder],
    )
