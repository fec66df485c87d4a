"""The records and committed offsets of a broker, read without a client."""

from __future__ import annotations

import asyncio
import difflib
from typing import TYPE_CHECKING

from partage.broker.broker import Broker
from partage.broker.configs.dynamic_configs import ConfigEdit, ConfigResource, DynamicConfigs
from partage.broker.topics.log_manager import LocalTopic
from partage.broker.topics.partition import Partition
from partage.broker.transactions.transaction_coordinator import TransactionCoordinator
from partage.log.disk import Disk
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.transactions.shard import TransactionShard
from partage.transactions.states import PREPARED
from partage.wire.apis.common import ConfigResourceType
from partage.wire.apis.fetch import FetchAbortedTransaction, FetchPartitionResult

if TYPE_CHECKING:
    from partage.client.consumer.records import Record

_UNLIMITED_BYTES = 1 << 62
_POLL_S = 0.002


def find_topic(broker: Broker, name: str) -> LocalTopic:
    """Return a topic.

    Raises:
        LookupError: the topic does not exist; the message has the most similar name.
    """
    topic = broker.log_manager.topic(name)
    if topic is None:
        names = [each.name for each in broker.log_manager.topics()]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise LookupError(f"the broker has no topic {name!r}{hint}")
    return topic


def read_records(broker: Broker, disk: Disk, name: str) -> list[Record]:
    """Return all records of a topic, by partition and offset; call this on the broker's loop.

    Raises:
        LookupError: the topic does not exist.
    """
    found = []
    for index, partition in sorted(find_topic(broker, name).partitions.items()):
        found += _read_partition(TopicPartition(name, index), partition, disk)
    return found


def read_offsets(
    broker: Broker, disk: Disk, topic_partition: TopicPartition, *, only_visible: bool
) -> list[int]:
    """Return the offsets of all records of a partition; [] if it does not exist.

    Args:
        broker: the broker.
        disk: its disk.
        topic_partition: the partition.
        only_visible: leave out records of open and aborted transactions.
    """
    partition = broker.log_manager.partition(*topic_partition)
    if partition is None:
        return []
    records = _read_partition(topic_partition, partition, disk, only_visible=only_visible)
    return [record.offset for record in records]


def _read_partition(
    topic_partition: TopicPartition, partition: Partition, disk: Disk, *, only_visible: bool = False
) -> list[Record]:
    # Imported here: the client takes as long to import as the broker, and many tests use another.
    from partage.client.consumer.fetch_plan import FetchedData
    from partage.client.consumer.fetch_response import FetchRules, parse_result

    rules = FetchRules(
        max_wait_ms=0,
        min_bytes=0,
        partition_bytes=_UNLIMITED_BYTES,
        read_committed=only_visible,
        check_crcs=False,
    )
    log = partition.log
    start = log.log_start_offset
    slices = log.locate(start, _UNLIMITED_BYTES, only_stable=only_visible)
    assert not isinstance(slices, Refusal), slices.message
    content = b"".join(disk.read(each.path, each.position, each.length) for each in slices)
    fetched = FetchPartitionResult(
        partition_index=topic_partition.partition,
        error_code=ErrorCode.NONE,
        high_watermark=log.high_watermark,
        aborted_transactions=[
            FetchAbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in log.aborted_transactions(start, slices)
        ]
        if only_visible
        else None,
        records=[content],
    )
    result, _ = parse_result(topic_partition, start, fetched, rules, retry_at_ms=0)
    assert isinstance(result, FetchedData), result
    if result.chunk is None or result.chunk.content is None:
        return []
    records: list[Record] = result.chunk.content.records(start, log.high_watermark)
    return records


def read_committed(broker: Broker, group_id: str) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group; call this on the broker's loop.

    Raises:
        RuntimeError: the coordinator was killed.
    """
    shard = broker.coordinator.host_of(group_id).shard
    if shard is None:
        raise RuntimeError(
            "the coordinator is killed, so it has no offsets; call revive_coordinator() first"
        )
    return {
        TopicPartition(topic, partition): record.offset
        for (topic, partition), record in sorted(shard.offsets.get(group_id, {}).items())
    }


async def remove_all_state(broker: Broker) -> None:
    """Delete all topics but internal ones, groups, offsets, transactional ids, altered configs."""
    await broker.wait_loaded()
    await _remove_transactions(broker.transactions)
    for topic in broker.log_manager.topics():
        if not broker.log_manager.is_internal(topic.name):
            await broker.log_manager.delete(topic.name)
    for host in broker.coordinator.hosts:
        host.remove_groups()
    await _remove_altered_configs(broker.dynamic_configs)


async def _remove_transactions(transactions: TransactionCoordinator) -> None:
    """Abort open transactions, wait for their markers, and remove the transactional ids."""
    for host in transactions.hosts:
        shard = host.shard
        assert shard is not None
        for transactional_id in list(shard.ongoing):
            host.time_out(transactional_id)
    for host in transactions.hosts:
        while not _is_idle(host.shard):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        host.remove_ids()


def _is_idle(shard: TransactionShard | None) -> bool:
    return shard is not None and not any(
        each.record.state in PREPARED for each in shard.transactions.values()
    )


async def _remove_altered_configs(configs: DynamicConfigs) -> None:
    brokers = ("", str(configs.static.node_id))
    resources = [ConfigResource(ConfigResourceType.BROKER, name) for name in brokers]
    resources += [ConfigResource(ConfigResourceType.GROUP, name) for name in configs.group_ids()]
    edits: dict[ConfigResource, ConfigEdit] = {
        resource: dict.clear for resource in resources if configs.configs_of(resource)
    }
    if edits:
        refused = await configs.alter(edits, validate_only=False)
        assert not refused, refused
