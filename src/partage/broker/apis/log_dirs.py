"""DescribeLogDirs and AlterReplicaLogDirs: the data directory as Kafka's only log directory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from partage.broker.net.inbound_request import InboundRequest
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.partition import Partition
from partage.broker.topics.real_disk import RealDisk
from partage.log.disk import Disk
from partage.model.errors import ErrorCode
from partage.wire.apis.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from partage.wire.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

#: The name of the log directory of a broker that keeps everything in memory.
MEMORY_LOG_DIR: Final = "memory"
_UNKNOWN: Final = (-1, -1)


def _log_dir(disk: Disk) -> str:
    return disk.path if isinstance(disk, RealDisk) else MEMORY_LOG_DIR


async def describe_log_dirs(inbound: InboundRequest, log_manager: LogManager, disk: Disk) -> None:
    """Respond with the data directory, and the size of each requested partition of this broker."""
    request: DescribeLogDirsRequest = inbound.message
    total, usable = _UNKNOWN
    if isinstance(disk, RealDisk):
        total, usable = await asyncio.to_thread(disk.space)
    inbound.respond(
        DescribeLogDirsResponse(
            results=[
                DescribeLogDirsResult(
                    error_code=ErrorCode.NONE,
                    log_dir=_log_dir(disk),
                    topics=list(_topics(request, log_manager)),
                    total_bytes=total,
                    usable_bytes=usable,
                )
            ]
        )
    )


def _topics(
    request: DescribeLogDirsRequest, log_manager: LogManager
) -> Iterator[DescribeLogDirsTopic]:
    if request.topics is None:
        for topic in log_manager.topics():
            if topic.partitions:
                yield _topic(topic.name, topic.partitions)
        return
    requested: dict[str, set[int]] = {}
    for entry in request.topics:
        requested.setdefault(entry.topic, set()).update(entry.partitions)
    for name, indexes in requested.items():
        local = {
            index: partition
            for index in sorted(indexes)
            if (partition := log_manager.partition(name, index)) is not None
        }
        if local:
            yield _topic(name, local)


def _topic(name: str, partitions: dict[int, Partition]) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(
        name=name,
        partitions=[
            DescribeLogDirsPartition(
                partition_index=index,
                partition_size=partition.log.size,
                offset_lag=0,
                is_future_key=False,
            )
            for index, partition in partitions.items()
        ],
    )


def alter_replica_log_dirs(inbound: InboundRequest, log_manager: LogManager, disk: Disk) -> None:
    """Accept the data directory, where each partition already is, and no other directory."""
    request: AlterReplicaLogDirsRequest = inbound.message
    log_dir = _log_dir(disk)
    results: dict[str, dict[int, ErrorCode]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            of_topic = results.setdefault(topic.name, {})
            for index in topic.partitions:
                if directory.path != log_dir:
                    of_topic[index] = ErrorCode.LOG_DIR_NOT_FOUND
                elif log_manager.partition(topic.name, index) is None:
                    of_topic[index] = log_manager.missing_partition_error(topic.name, index)
                else:
                    of_topic[index] = ErrorCode.NONE
    inbound.respond(
        AlterReplicaLogDirsResponse(
            results=[
                AlterReplicaLogDirTopicResult(
                    topic_name=name,
                    partitions=[
                        AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
                        for index, error in of_topic.items()
                    ],
                )
                for name, of_topic in results.items()
            ]
        )
    )
