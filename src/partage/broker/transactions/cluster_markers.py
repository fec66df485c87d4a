"""Markers for partitions of a cluster: appended here, or sent to their brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

from partage.broker.cluster.broker_node import BrokerNode
from partage.broker.cluster.cluster_view import ClusterView
from partage.broker.cluster.peer_connection import PeerConnection
from partage.broker.topics.log_manager import LogManager
from partage.broker.transactions.local_markers import LocalMarkers, MarkerDone, PartitionMarker
from partage.broker.transactions.peer_queue import PeerQueues, Report
from partage.model.errors import ErrorCode
from partage.model.printable import printable
from partage.model.topic_partition import TopicPartition
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.wire.apis.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

log = logging.getLogger(__name__)

_VERSION: Final = 2
_MARKERS_PER_REQUEST: Final = 512

#: True if the cluster has a topic, as far as it can be known.
TopicExists = Callable[[str], Awaitable[bool]]


class _SentMarker(NamedTuple):
    marker: PartitionMarker
    where: TopicPartition
    done: MarkerDone


class ClusterMarkers(PeerQueues[_SentMarker]):
    """Implements `MarkerSink` for a cluster.

    Args:
        local: appends the markers for partitions of this broker.
        log_manager: the topics of the cluster.
        cluster_view: the brokers of partitions and groups.
        topic_exists: asks ZooKeeper about a topic. This broker may not have applied the latest
            changes of topics.
    """

    def __init__(
        self,
        local: LocalMarkers,
        log_manager: LogManager,
        cluster_view: ClusterView,
        topic_exists: TopicExists,
    ) -> None:
        super().__init__(cluster_view)
        self._local = local
        self._log_manager = log_manager
        self._topic_exists = topic_exists
        self._lookups: set[asyncio.Task[None]] = set()

    def append(self, marker: PartitionMarker, where: TopicPartition, done: MarkerDone) -> None:
        """Append one marker, here or on the broker of the partition."""
        assert marker.coordinator_epoch is not None, "markers of a cluster have an epoch"
        if where.topic == OFFSETS_TOPIC:
            owner = self._cluster_view.group_shard_owner(where.partition)
        else:
            local_topic = self._log_manager.topic(where.topic)
            if local_topic is None:
                self._look_up(where.topic, done)
                return
            if not 0 <= where.partition < local_topic.partition_count:
                done(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # this broker will apply the change soon
                return
            owner = self._cluster_view.broker_of(local_topic.topic, where.partition)
        if owner is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif owner == self._cluster_view.node.node_id:
            self._local.append(marker, where, done)
        else:
            self._put(owner, _SentMarker(marker, where, done))

    def _look_up(self, topic: str, done: MarkerDone) -> None:
        async def look_up() -> None:
            exists = True
            try:
                exists = await self._topic_exists(topic)
            except Exception:  # a bug; the marker is tried again
                log.exception("look-up of topic %s failed", printable(topic))
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER if exists else unknown)

        task = asyncio.get_running_loop().create_task(look_up())
        self._lookups.add(task)
        task.add_done_callback(self._lookups.discard)

    def _take(self, pending: list[_SentMarker]) -> list[_SentMarker]:
        """Take at most one marker of a producer for a partition: a response cannot tell two."""
        taken: dict[tuple[int, TopicPartition], _SentMarker] = {}
        left: list[_SentMarker] = []
        for item in pending:
            key = item.marker.producer_id, item.where
            if len(taken) < _MARKERS_PER_REQUEST and key not in taken:
                taken[key] = item
            else:
                left.append(item)
        pending[:] = left
        return list(taken.values())

    def _fail(self, item: _SentMarker) -> None:
        item.done(ErrorCode.LEADER_NOT_AVAILABLE)

    async def _send(
        self, node: BrokerNode, connection: PeerConnection, items: list[_SentMarker]
    ) -> list[Report]:
        response = await connection.request(node, WRITE_TXN_MARKERS, _VERSION, _request(items))
        errors = _errors(response)
        return [
            partial(item.done, _result(errors.get((item.marker.producer_id, item.where))))
            for item in items
        ]

    def close(self) -> None:
        """Stop; pending markers get no result."""
        super().close()
        for task in list(self._lookups):
            task.cancel()


def _result(error: ErrorCode | None) -> ErrorCode:
    """Return the result of a marker for the error in the response, None if there is none."""
    if error is None:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    # A broker that does not know the topic may be behind. The next attempt looks for it here.
    is_unknown = error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_unknown else error


def _request(items: list[_SentMarker]) -> WriteTxnMarkersRequest:
    by_marker: dict[PartitionMarker, dict[str, list[int]]] = {}
    for item in items:
        topics = by_marker.setdefault(item.marker, {})
        topics.setdefault(item.where.topic, []).append(item.where.partition)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.is_commit,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                    for name, indexes in topics.items()
                ],
                coordinator_epoch=marker.coordinator_epoch or 0,
                transaction_version=marker.version,
            )
            for marker, topics in by_marker.items()
        ]
    )


def _errors(response: WriteTxnMarkersResponse) -> dict[tuple[int, TopicPartition], ErrorCode]:
    return {
        (marker.producer_id, TopicPartition(topic.name, one.partition_index)): ErrorCode(
            one.error_code
        )
        for marker in response.markers
        for topic in marker.topics
        for one in topic.partitions
    }
