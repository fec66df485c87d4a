"""Adapter of OffsetFetch."""

from __future__ import annotations

from partage.bridge.api_adapter import ApiAdapter, ApiCall
from partage.bridge.topic_ids import has_topic_ids, set_topic_names
from partage.coordinator.events import FetchOffsets
from partage.coordinator.records import OffsetRecord
from partage.coordinator.replies import FetchOffsetsReply
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchGroup,
    OffsetFetchGroupResult,
    OffsetFetchPartitionResult,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
    OffsetFetchTopicResult,
)
from partage.wire.types import ZERO_UUID


def to_events(call: ApiCall[OffsetFetchRequest]) -> list[FetchOffsets]:
    """Return one event for each distinct group; before v8 a request names one group."""
    call.prepared = _groups(call)
    return [
        FetchOffsets(
            at_ms=call.at_ms,
            reply_to=call.sub_ticket(index),
            group_id=group.group_id,
            partitions=_requested_partitions(_existing(call, group.topics)),
            requires_stable=call.message.require_stable,
            member_id=group.member_id,
            member_epoch=group.member_epoch,
        )
        for index, group in enumerate(call.prepared)
    ]


def _groups(call: ApiCall[OffsetFetchRequest]) -> list[OffsetFetchGroup]:
    request = call.message
    if call.version >= 8:
        # Duplicates are dropped: the offsets of a group can be much larger than the id in the
        # request.
        return list({group.group_id: group for group in request.groups}.values())
    return [OffsetFetchGroup(group_id=request.group_id, topics=request.topics)]


def _existing(
    call: ApiCall[OffsetFetchRequest], topics: list[OffsetFetchTopic] | None
) -> list[OffsetFetchTopic] | None:
    """Return the topics without those of unknown ids; None requests all topics."""
    if topics is None or not has_topic_ids(call):
        return topics
    set_topic_names(call, topics)
    return [topic for topic in topics if topic.name]


def _requested_partitions(
    topics: list[OffsetFetchTopic] | None,
) -> tuple[TopicPartition, ...] | None:
    if topics is None:
        return None
    return tuple(
        TopicPartition(topic.name, index) for topic in topics for index in topic.partition_indexes
    )


def to_response(
    call: ApiCall[OffsetFetchRequest], replies: list[FetchOffsetsReply]
) -> OffsetFetchResponse:
    """Return the response. Up to v7 it has one group at the top level, and in v1 errors by
    partition.
    """
    groups: list[OffsetFetchGroup] = call.prepared
    if call.version >= 8:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchGroupResult(
                    group_id=group.group_id,
                    topics=[] if reply.error else _topics_of_group(call, group, reply),
                    error_code=reply.error,
                )
                for group, reply in zip(groups, replies, strict=True)
            ]
        )
    (reply,) = replies
    by_partition = call.version < 2
    topics = [] if reply.error and not by_partition else _topics(groups[0].topics, reply)
    return OffsetFetchResponse(topics=topics, error_code=reply.error)


def _topics_of_group(
    call: ApiCall[OffsetFetchRequest], group: OffsetFetchGroup, reply: FetchOffsetsReply
) -> list[OffsetFetchTopicResult]:
    """Return the topics of a successful group. With ids, those of unknown ids come last; a
    response with all topics omits those without an id, as Kafka does.
    """
    if not has_topic_ids(call):
        return _topics(group.topics, reply)
    requested = group.topics
    if requested is None:
        results = _topics(None, reply)
        topic_id = call.broker.topic_id
        for result in results:
            result.topic_id = topic_id(result.name) or ZERO_UUID
        return [result for result in results if result.topic_id != ZERO_UUID]
    known = [topic for topic in requested if topic.name]
    ids = {topic.name: topic.topic_id for topic in known}
    results = _topics(known, reply)
    for result in results:
        result.topic_id = ids[result.name]
    unknown = [
        OffsetFetchTopicResult(
            topic_id=topic.topic_id,
            partitions=[
                _partition(index, None, ErrorCode.UNKNOWN_TOPIC_ID)
                for index in topic.partition_indexes
            ],
        )
        for topic in requested
        if not topic.name
    ]
    return results + unknown


def _topics(
    requested: list[OffsetFetchTopic] | None, reply: FetchOffsetsReply
) -> list[OffsetFetchTopicResult]:
    if requested is None:
        wanted = [(each.topic, each.partition) for each in reply.offsets if each is not None]
    else:
        wanted = [(topic.name, index) for topic in requested for index in topic.partition_indexes]
    offsets = (None,) * len(wanted) if reply.error else reply.offsets
    topics: dict[str, OffsetFetchTopicResult] = {}
    for (name, index), committed in zip(wanted, offsets, strict=True):
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = OffsetFetchTopicResult(name=name, partitions=[])
        error = reply.error
        if (name, index) in reply.unstable:
            committed, error = None, ErrorCode.UNSTABLE_OFFSET_COMMIT
        topic.partitions.append(_partition(index, committed, error))
    return list(topics.values())


def _partition(
    index: int, committed: OffsetRecord | None, error: ErrorCode
) -> OffsetFetchPartitionResult:
    if committed is None:
        return OffsetFetchPartitionResult(
            partition_index=index, committed_offset=-1, metadata="", error_code=error
        )
    return OffsetFetchPartitionResult(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error,
    )


OFFSET_FETCH_ADAPTER = ApiAdapter(OFFSET_FETCH, to_events, to_response)
