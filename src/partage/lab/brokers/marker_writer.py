"""Writes the markers of decided transactions, on the virtual clock.

It corresponds to `marker_writer`, `cluster_markers` and `local_markers` in
`partage.broker.transactions`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from partage.lab.brokers.cluster_directory import ClusterDirectory
from partage.lab.brokers.peer_requests import PeerRequests
from partage.lab.brokers.server_connection import ServedRequest
from partage.lab.brokers.shell import BrokerShell
from partage.lab.history import SimMarker
from partage.log.producer_state import ProducerStateManager
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.runtime.transaction_markers import COORDINATOR_EPOCH, is_settled
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.transactions.outcome import MarkersToWrite
from partage.wire.apis.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

MARKERS_VERSION: Final = 2
_UNAVAILABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
MarkerDone = Callable[[ErrorCode], None]
_RETRY_AFTER_MS: Final = 100


class SimMarkerOrder(Protocol):
    """An order of markers, as the writer sees it."""

    markers: MarkersToWrite
    coordinator_epoch: int | None

    @property
    def is_current(self) -> bool:
        """False if the shard was discarded since: it will order the markers again."""

    def on_written(self, partition: TopicPartition) -> None:
        """Handle a durable marker, or a partition that no longer exists."""


class SimMarkerWriter:
    """Writes each marker until it is durable, or a later marker of the producer is.

    Args:
        broker: The broker's process.
        directory: Finds the brokers of partitions.
        local: Appends the markers for partitions of this broker.
        peers: Sends the others.
    """

    def __init__(
        self,
        broker: BrokerShell,
        directory: ClusterDirectory,
        local: SimLocalMarkers,
        peers: PeerRequests,
    ) -> None:
        self._broker = broker
        self._directory = directory
        self._local = local
        self._peers = peers

    def write(self, order: SimMarkerOrder) -> None:
        """Write the markers of an order, each after a random delay."""
        world = self._broker.world
        longest_ms = 0 if world.is_healed else world.options.marker_delay_max_ms
        for partition in order.markers.partitions:
            if longest_ms:
                delay_ms = world.broker_rng.randrange(longest_ms + 1)
                self._broker.call_later(delay_ms, partial(self._write, order, partition))
            else:
                self._write(order, partition)

    def _write(self, order: SimMarkerOrder, partition: TopicPartition) -> None:
        if not order.is_current:
            return
        broker = self._broker
        held_ms = broker.world.marker_holds.get(partition, 0) - broker.world.now_ms
        if held_ms > 0:
            broker.call_later(held_ms, lambda: self._write(order, partition))
            return
        if broker.hit_crash_point([order.markers], is_stored=False):
            return

        def done(error: ErrorCode) -> None:
            if not order.is_current:
                return
            if not error:
                broker.world.written_markers.append((partition, marker))
            if not is_settled(error):
                broker.call_later(_RETRY_AFTER_MS, lambda: self._write(order, partition))
            elif not broker.hit_crash_point([order.markers], is_stored=True):
                order.on_written(partition)

        marker = SimMarker(
            order.markers.producer_id,
            order.markers.epoch,
            order.coordinator_epoch,
            order.markers.is_commit,
            order.markers.version,
        )
        leader = self._directory.leader(partition)
        if leader not in (None, self._directory.broker_id) and broker.hit_marker_pause():
            broker.when_awake(lambda: self._write(order, partition), is_timer=True)
        elif leader is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif leader == self._directory.broker_id:
            self._local.append(marker, partition, done)
        else:
            self._send(leader, marker, partition, done)

    def _send(
        self, leader: int, marker: SimMarker, where: TopicPartition, done: MarkerDone
    ) -> None:
        request = marker_request(marker, where)

        def on_response(response: WriteTxnMarkersResponse | None) -> None:
            if response is None:
                done(ErrorCode.LEADER_NOT_AVAILABLE)
            else:
                done(ErrorCode(response.markers[0].topics[0].partitions[0].error_code))

        self._peers.send(leader, WRITE_TXN_MARKERS, MARKERS_VERSION, request, on_response)


def marker_request(marker: SimMarker, where: TopicPartition) -> WriteTxnMarkersRequest:
    """Return the request of one broker to another to write a marker."""
    topic = WritableTxnMarkerTopic(name=where.topic, partition_indexes=[where.partition])
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.is_commit,
                topics=[topic],
                coordinator_epoch=marker.coordinator_epoch or 0,
                transaction_version=marker.version,
            )
        ]
    )


class SimLocalMarkers:
    """Appends markers to the partitions and the group shards of this broker.

    Args:
        broker: The broker's process.
        directory: Finds the host of a group shard.
        on_failed: Called with topic and index of a partition whose write failed.
    """

    def __init__(
        self,
        broker: BrokerShell,
        directory: ClusterDirectory,
        on_failed: Callable[[str, int], None],
    ) -> None:
        self._broker = broker
        self._directory = directory
        self._on_failed = on_failed

    def handle(self, inbound: ServedRequest) -> None:
        """Handle a WriteTxnMarkers request of another broker."""
        results: list[WritableTxnMarkerResult] = []
        pending = 1

        def complete_one() -> None:
            nonlocal pending
            pending -= 1
            if not pending:
                inbound.respond(WriteTxnMarkersResponse(markers=results))

        for asked in inbound.message.markers:
            marker = SimMarker(
                asked.producer_id,
                asked.producer_epoch,
                asked.coordinator_epoch,
                asked.transaction_result,
                asked.transaction_version,
            )
            topics: list[WritableTxnMarkerTopicResult] = []
            results.append(WritableTxnMarkerResult(producer_id=asked.producer_id, topics=topics))
            for topic in asked.topics:
                partitions: list[WritableTxnMarkerPartitionResult] = []
                topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
                for index in topic.partition_indexes:
                    result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=0)
                    partitions.append(result)
                    pending += 1

                    def done(
                        error: ErrorCode, result: WritableTxnMarkerPartitionResult = result
                    ) -> None:
                        result.error_code = error
                        complete_one()

                    self.append(marker, TopicPartition(topic.name, index), done)
        complete_one()

    def append(self, marker: SimMarker, where: TopicPartition, done: MarkerDone) -> None:
        """Append one marker; ``done`` is called once, with NONE when it is durable."""
        if where.topic == OFFSETS_TOPIC:
            self._append_to_group_shard(marker, where.partition, done)
            return
        broker = self._broker
        assert broker.storage is not None, "the process has no disk"
        partition = broker.storage.partitions.get(where)
        if partition is None:
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return

        def on_durable(error: ErrorCode) -> None:
            broker.when_awake(lambda: on_result(error))

        def on_result(error: ErrorCode) -> None:
            if error and broker.storage is not None:
                self._on_failed(*where)
            done(error)

        outcome = partition.append_marker(
            marker.producer_id,
            marker.producer_epoch,
            _coordinator_epoch(marker, partition.log.producer_state),
            is_commit=marker.is_commit,
            transaction_version=marker.version,
            at_ms=broker.world.now_ms,
            done=on_durable,
        )
        if isinstance(outcome, Refusal):
            is_durable = partition.log.high_watermark == partition.log.end_offset
            done(_refused_error(outcome, is_durable=is_durable))

    def _append_to_group_shard(self, marker: SimMarker, shard: int, done: MarkerDone) -> None:
        host = self._directory.group_host(shard)
        if host.shard is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        # The group coordinator appends without checks.
        producers = host.producer_state
        epoch = _coordinator_epoch(marker, producers)
        refusal = producers.check_marker(
            marker.producer_id, marker.producer_epoch, epoch, marker.version
        )
        if refusal is not None:
            done(_refused_error(refusal, is_durable=host.is_caught_up))
            return
        host.complete_transaction(
            marker.producer_id,
            marker.producer_epoch,
            epoch,
            is_commit=marker.is_commit,
            done=lambda error: done(_shown_error(error)),
        )


def _coordinator_epoch(marker: SimMarker, producers: ProducerStateManager) -> int:
    if marker.coordinator_epoch is not None:
        return marker.coordinator_epoch
    return max(COORDINATOR_EPOCH, producers.coordinator_epoch(marker.producer_id))


def _refused_error(refusal: Refusal, *, is_durable: bool) -> ErrorCode:
    """Return the error of a refused marker.

    A later marker that overtook this one counts only when it is durable.
    """
    if is_settled(refusal.code) and not is_durable:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return refusal.code


def _shown_error(error: ErrorCode) -> ErrorCode:
    """Return the error of the group coordinator as Kafka reports it for a marker."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if error in _UNAVAILABLE else error
