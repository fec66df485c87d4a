"""OffsetCommit and OffsetFetch requests of one group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from partage.bridge.member_requests import to_error_code
from partage.client.errors import BrokerResponseError, error_name
from partage.client.group.coordinator_client import CoordinatorClient
from partage.client.group.errors import CommitFailedError
from partage.member.member import CommitIdentity
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from partage.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
    OffsetFetchTopicResult,
)
from partage.wire.types import ZERO_UUID

#: The identity of a client that is not a member of the group.
NO_MEMBER: Final = CommitIdentity(generation=-1, member_id="", instance_id=None)

#: Errors after which the coordinator must be looked up again.
COORDINATOR_MOVED_ERRORS: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)

#: Errors that mean that the member is not in the generation it believes to be in.
FENCED_ERRORS: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


class OffsetAndMetadata(msgspec.Struct, frozen=True):
    """A committed offset: the offset of the next record to read.

    ``metadata`` is a string that the user chooses.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


Offsets = Mapping[TopicPartition, OffsetAndMetadata]
#: The ids of the topics of some partitions.
TopicIds = Mapping[TopicPartition, bytes]


class IdentifiedOffsets(NamedTuple):
    """Offsets, and the ids of the topics to which they belong, as far as they are known."""

    offsets: Offsets
    topic_ids: TopicIds = MappingProxyType({})


async def commit(
    coordinator: CoordinatorClient, group_id: str, identity: CommitIdentity, offsets: Offsets
) -> None:
    """Commit all offsets in one attempt.

    Raises:
        BrokerResponseError: The request failed, with the code of its first error.
        CommitFailedError: Some partitions cannot be committed; the rest may be.
        ClientError: As `CoordinatorClient.send`.
    """
    await coordinator.connect()
    refused = await commit_once(coordinator, group_id, identity, offsets)
    for code in refused.values():
        if code in FENCED_ERRORS or BrokerResponseError(code, "").is_retriable:
            raise BrokerResponseError(code, f"committing offsets of group {group_id!r}")
    if refused:
        story = ", ".join(f"{partition}: {error_name(c)}" for partition, c in refused.items())
        raise CommitFailedError(story, next(iter(refused.values())))


async def commit_once(
    coordinator: CoordinatorClient,
    group_id: str,
    identity: CommitIdentity,
    offsets: Offsets,
    topic_ids: TopicIds = MappingProxyType({}),
) -> dict[TopicPartition, int]:
    """Send a commit on the existing connection; return the error codes of refused partitions.

    If the coordinator supports it (Kafka 4.1), partitions with known topic ids are committed by id:
    the offset of a topic that was deleted is not stored for another topic of the same name.

    Raises:
        ClientError: As `CoordinatorClient.send`; the offsets may or may not be stored.
    """
    version_max = OFFSET_COMMIT.version_max
    has_ids = coordinator.version_of(OFFSET_COMMIT, version_max) > OFFSET_COMMIT.by_name_max
    ids = topic_ids if has_ids else {}
    by_id = {partition: offset for partition, offset in offsets.items() if partition in ids}
    by_name = {partition: offset for partition, offset in offsets.items() if partition not in ids}
    refused: dict[TopicPartition, int] = {}
    if by_name:
        answer = await coordinator.send(OFFSET_COMMIT, _commit(group_id, identity, by_name, {}))
        refused |= _refused(answer, {})
    if by_id:
        request = _commit(group_id, identity, by_id, ids)
        answer = await coordinator.send(OFFSET_COMMIT, request, version_max=version_max)
        refused |= _refused(answer, {ids[partition]: partition.topic for partition in by_id})
    if not COORDINATOR_MOVED_ERRORS.isdisjoint(refused.values()):
        coordinator.disconnect()
    return refused


def _refused(answer: OffsetCommitResponse, names: Mapping[bytes, str]) -> dict[TopicPartition, int]:
    """Return the error codes of refused partitions; ``names`` are those of topic ids."""
    return {
        TopicPartition(topic.name or names[topic.topic_id], partition.partition_index): (
            partition.error_code
        )
        for topic in answer.topics
        for partition in topic.partitions
        if partition.error_code
    }


def _commit(
    group_id: str, identity: CommitIdentity, offsets: Offsets, topic_ids: TopicIds
) -> OffsetCommitRequest:
    by_topic: dict[tuple[str, bytes], list[OffsetCommitPartition]] = {}
    for partition, committed in offsets.items():
        topic = partition.topic, topic_ids.get(partition, ZERO_UUID)
        by_topic.setdefault(topic, []).append(
            OffsetCommitPartition(
                partition_index=partition.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        topics=[
            OffsetCommitTopic(name=name, topic_id=topic_id, partitions=of)
            for (name, topic_id), of in by_topic.items()
        ],
    )


async def fetch_committed(
    coordinator: CoordinatorClient, group_id: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the group's committed offsets in one attempt; partitions without one are left out.

    Raises:
        BrokerResponseError: With the code of the first error.
        ClientError: As `CoordinatorClient.send`.
    """
    await coordinator.connect()
    answer = await coordinator.send(OFFSET_FETCH, _fetch(group_id, partitions))
    topics, code = answer.topics, answer.error_code
    for group in answer.groups:  # before v8 the response has one group
        topics, code = group.topics, group.error_code
    found, first = parse_offsets(topics)
    _check(coordinator, group_id, code or first)
    return found


def _fetch(group_id: str, partitions: Sequence[TopicPartition]) -> OffsetFetchRequest:
    """Return a request for one group, valid before and after v8 (KIP-709)."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    topics = [OffsetFetchTopic(name=n, partition_indexes=of) for n, of in by_topic.items()]
    return OffsetFetchRequest(
        group_id=group_id,
        topics=topics,
        groups=[OffsetFetchGroup(group_id=group_id, topics=topics)],
        require_stable=True,  # offsets of a pending transaction may be rolled back (KIP-447)
    )


def parse_offsets(
    topics: Iterable[OffsetFetchTopicResult],
) -> tuple[dict[TopicPartition, OffsetAndMetadata], int]:
    """Return the offsets of a response, and its first error code, 0 if there is none."""
    found, first = {}, 0
    for topic in topics:
        for result in topic.partitions:
            first = first or result.error_code
            if result.committed_offset >= 0 and not result.error_code:
                found[TopicPartition(topic.name, result.partition_index)] = OffsetAndMetadata(
                    result.committed_offset, result.metadata or "", result.committed_leader_epoch
                )
    return found, first


def _check(coordinator: CoordinatorClient, group_id: str, code: int) -> None:
    if not code:
        return
    if to_error_code(code) in COORDINATOR_MOVED_ERRORS:
        coordinator.disconnect()
    raise BrokerResponseError(code, f"reading the offsets of group {group_id!r}")
