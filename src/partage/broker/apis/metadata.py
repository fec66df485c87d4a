"""Metadata: the broker, the topics and their partitions."""

from __future__ import annotations

from collections.abc import Iterator

from partage.broker.hosted import Hosted, HostedTopic
from partage.broker.inbound import Inbound
from partage.broker.node import Node
from partage.log.outcomes import Refusal
from partage.model.errors import ErrorCode
from partage.wire.apis.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)

_ANSWERS_WITHOUT_NAME = 12


async def metadata(inbound: Inbound, hosted: Hosted, node: Node) -> None:
    """Describe the topics asked for; a missing one is created if client and broker both wish."""
    request: MetadataRequest = inbound.message
    everything = request.topics is None or (inbound.version == 0 and not request.topics)
    topics: list[MetadataTopic] = []
    if everything:
        topics = [_described(topic, node) for topic in hosted.topics()]
    else:
        # Each topic once, however often it is asked for: a name is small, what it names is not.
        for asked in {(t.name, t.topic_id): t for t in request.topics or ()}.values():
            if asked.name is None and inbound.version < _ANSWERS_WITHOUT_NAME:
                topics.append(_refused(ErrorCode.INVALID_REQUEST))
            else:
                topics.append(await _one(asked, hosted, node, request.allow_auto_topic_creation))
    inbound.respond(
        MetadataResponse(
            brokers=[
                MetadataBroker(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            ],
            cluster_id=node.cluster_id,
            controller_id=node.node_id,
            topics=topics,
        )
    )


async def _one(
    asked: MetadataRequestTopic, hosted: Hosted, node: Node, may_create: bool
) -> MetadataTopic:
    if asked.name is None:
        known = hosted.topic_by_id(asked.topic_id)
        if known is not None:
            return _described(known, node)
        return MetadataTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id, partitions=[]
        )
    topic = hosted.topic(asked.name)
    if topic is not None:
        return _described(topic, node)
    if may_create and hosted.settings.auto_create_topics:
        created = await hosted.create_missing(asked.name)
        if not isinstance(created, Refusal):
            return _described(created, node)
        return MetadataTopic(error_code=created.code, name=asked.name, partitions=[])
    refusal = hosted.check_name(asked.name)
    error = refusal.code if refusal else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return MetadataTopic(error_code=error, name=asked.name, partitions=[])


def _refused(error: ErrorCode) -> MetadataTopic:
    return MetadataTopic(error_code=error, name="", partitions=[])


def _described(topic: HostedTopic, node: Node) -> MetadataTopic:
    return MetadataTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic.topic_id,
        is_internal=topic.topic.is_internal,
        partitions=list(_partitions(len(topic.partitions), node)),
    )


def _partitions(count: int, node: Node) -> Iterator[MetadataPartition]:
    """Every partition is led by this broker, with nobody following."""
    only = [node.node_id]
    for index in range(count):
        yield MetadataPartition(
            error_code=ErrorCode.NONE,
            partition_index=index,
            leader_id=node.node_id,
            leader_epoch=0,
            replica_nodes=only,
            isr_nodes=only,
        )
