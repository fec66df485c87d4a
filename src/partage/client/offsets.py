"""ListOffsets: the ends of partitions, and offsets by time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from partage.client.cluster import Cluster
from partage.client.connection import Connection
from partage.client.errors import BrokerResponseError, ClientError
from partage.client.metadata import LeaderAndEpoch
from partage.client.options import RetryPolicy
from partage.client.retries import Retries
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.list_offsets import (
    EARLIEST,
    LATEST,
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsPartitionResult,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

# The error for a partition that is missing in the response
_LEFT_OUT = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

__all__ = ["EARLIEST", "LATEST", "OffsetAndTimestamp", "list_offsets"]


class OffsetAndTimestamp(NamedTuple):
    """An offset and the timestamp of its record; ``timestamp_ms`` is -1 for the ends of a
    partition.
    """

    offset: int
    timestamp_ms: int


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    *,
    read_committed: bool = False,
    policy: RetryPolicy | None = None,
    on_failure: Callable[[ClientError], None] = lambda error: None,
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Return, for each partition, one of its ends or the first offset at or after a time.

    Every leader gets one request; partitions without a result are requested again within the
    policy.

    Args:
        cluster: The cluster.
        wanted: A time in ms by partition, or `EARLIEST`, or `LATEST` (the offset after the last
            record).
        read_committed: True to let `LATEST` be the first offset of an open transaction.
        policy: ``options.retries`` of the cluster if None.
        on_failure: Called with the error of each attempt that is repeated, and of the last one.

    Returns:
        The offset by partition; None if no record is that late.

    Raises:
        ClientError: The last error.
    """
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
    retries = Retries(policy or cluster.options.retries)
    while len(found) < len(wanted):
        left = [partition for partition in wanted if partition not in found]
        failure = await _attempt(cluster, left, wanted, read_committed, found)
        if failure is not None:
            on_failure(failure)
            await retries.wait_or_raise(failure)
    return {partition: found[partition] for partition in wanted}


async def _attempt(
    cluster: Cluster,
    left: Iterable[TopicPartition],
    wanted: Mapping[TopicPartition, int],
    read_committed: bool,
    found: dict[TopicPartition, OffsetAndTimestamp | None],
) -> ClientError | None:
    """Request the missing offsets from all leaders. Return a retriable error, or None.

    Other errors are raised.
    """
    by_connection: dict[Connection, list[tuple[TopicPartition, LeaderAndEpoch]]] = {}
    failures: list[ClientError] = []
    for partition in left:
        try:
            connection, leadership = await cluster.leader(partition)
        except ClientError as error:
            if not error.is_retriable:
                raise
            failures.append(error)
        else:
            by_connection.setdefault(connection, []).append((partition, leadership))
    answers = await asyncio.gather(
        *(
            _ask(connection, group, wanted, read_committed)
            for connection, group in by_connection.items()
        ),
        return_exceptions=True,
    )
    for group, answer in zip(by_connection.values(), answers, strict=True):
        if isinstance(answer, ClientError):
            failures.append(answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            for partition, _ in group:
                result = answer.get(partition)
                code = _LEFT_OUT if result is None else result.error_code
                if result is None or code:
                    failures.append(BrokerResponseError(code, f"the offsets of {partition}"))
                else:
                    found[partition] = _found(result)
        for partition, _ in group:
            if partition not in found:
                cluster.invalidate_topic(partition.topic)
    # Errors that cannot be retried come first
    failures.sort(key=lambda failure: failure.is_retriable)
    return failures[0] if failures else None


async def _ask(
    connection: Connection,
    group: list[tuple[TopicPartition, LeaderAndEpoch]],
    wanted: Mapping[TopicPartition, int],
    read_committed: bool,
) -> dict[TopicPartition, ListOffsetsPartitionResult]:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for partition, leadership in group:
        topics.setdefault(partition.topic, []).append(
            ListOffsetsPartition(
                partition_index=partition.partition,
                current_leader_epoch=leadership.leader_epoch,
                timestamp_ms=wanted[partition],
            )
        )
    request = ListOffsetsRequest(
        isolation_level=int(read_committed),
        topics=[ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )
    answer = await connection.send(LIST_OFFSETS, request)
    return {
        TopicPartition(topic.name, result.partition_index): result
        for topic in answer.topics
        for result in topic.partitions
    }


def _found(result: ListOffsetsPartitionResult) -> OffsetAndTimestamp | None:
    return None if result.offset < 0 else OffsetAndTimestamp(result.offset, result.timestamp_ms)
