"""Metadata: the brokers, the topics and their partitions."""

from __future__ import annotations

from collections.abc import Iterator

from partage.broker.cluster.cluster_view import ClusterView
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.topics.log_manager import LocalTopic, LogManager
from partage.broker.topics.topic_admin import TopicAdmin
from partage.log.catalogue.topic_catalogue import TopicDefinition
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.wire.apis.common import CLUSTER_OPERATIONS, OPERATIONS_OMITTED, TOPIC_OPERATIONS
from partage.wire.apis.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)

_ANSWERS_WITHOUT_NAME = 12


async def metadata(
    inbound: InboundRequest, log_manager: LogManager, cluster_view: ClusterView, changes: TopicAdmin
) -> None:
    """Describe the requested topics.

    A missing topic is created if both the client (`allow_auto_topic_creation`) and the broker
    (`auto.create.topics.enable`) allow it.
    """
    request: MetadataRequest = inbound.message
    everything = request.topics is None or (inbound.version == 0 and not request.topics)
    topics: list[MetadataTopic] = []
    if everything:
        topics = [_describe(topic, cluster_view) for topic in log_manager.topics()]
    else:
        # A topic is described once, even if it is named often: a small request must not produce a
        # huge response.
        for requested in {(t.name, t.topic_id): t for t in request.topics or ()}.values():
            if requested.name is None and inbound.version < _ANSWERS_WITHOUT_NAME:
                topics.append(_error_response(ErrorCode.INVALID_REQUEST))
            else:
                may_create = changes if request.allow_auto_topic_creation else None
                topics.append(
                    await _describe_requested(requested, log_manager, cluster_view, may_create)
                )
    if request.include_topic_authorized_operations:
        for topic in topics:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
    is_included = request.include_cluster_authorized_operations
    inbound.respond(
        MetadataResponse(
            brokers=[
                MetadataBroker(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
                for node in cluster_view.brokers()
            ],
            cluster_id=cluster_view.node.cluster_id,
            controller_id=cluster_view.controller_id(),
            topics=topics,
            cluster_authorized_operations=CLUSTER_OPERATIONS if is_included else OPERATIONS_OMITTED,
        )
    )


async def _describe_requested(
    requested: MetadataRequestTopic,
    log_manager: LogManager,
    cluster_view: ClusterView,
    may_create: TopicAdmin | None,
) -> MetadataTopic:
    if requested.name is None:
        known = log_manager.topic_by_id(requested.topic_id)
        if known is not None:
            return _describe(known, cluster_view)
        return MetadataTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            name=None,
            topic_id=requested.topic_id,
            partitions=[],
        )
    topic = log_manager.topic(requested.name)
    if topic is not None:
        return _describe(topic, cluster_view)
    if may_create is not None and log_manager.settings.auto_create_topics:
        created = await may_create.auto_create(requested.name)
        if not isinstance(created, Refusal):
            return _describe(created, cluster_view)
        return MetadataTopic(error_code=created.code, name=requested.name, partitions=[])
    refusal = log_manager.check_name(requested.name)
    error = refusal.code if refusal else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return MetadataTopic(error_code=error, name=requested.name, partitions=[])


def _error_response(error: ErrorCode) -> MetadataTopic:
    return MetadataTopic(error_code=error, name="", partitions=[])


def _describe(topic: LocalTopic, cluster_view: ClusterView) -> MetadataTopic:
    return MetadataTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic.topic_id,
        is_internal=topic.topic.is_internal,
        partitions=list(_partitions(topic.topic, cluster_view)),
    )


def _partitions(topic: TopicDefinition, cluster_view: ClusterView) -> Iterator[MetadataPartition]:
    """Yield the partitions of a topic, each led by the broker that stores it, without followers.

    A partition of a broker that is down has no leader, but it stays listed. An assignor must not
    take the topic for smaller than it is.
    """
    for index in range(topic.partition_count):
        holder = cluster_view.broker_of(topic, index)
        is_up = cluster_view.is_up(holder)
        yield MetadataPartition(
            error_code=ErrorCode.NONE if is_up else ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=index,
            leader_id=holder if is_up else -1,
            leader_epoch=0,
            replica_nodes=[holder],
            isr_nodes=[holder] if is_up else [],
            offline_replicas=[] if is_up else [holder],
        )
