"""End offsets of partitions that other brokers store, requested with ListOffsets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from partage.broker.cluster.broker_node import BrokerNode
from partage.broker.cluster.cluster_view import ClusterView
from partage.broker.cluster.peer_frames import encode_peer_request, read_peer_response
from partage.broker.topics.log_manager import LogManager
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.list_offsets import (
    LATEST,
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

log = logging.getLogger(__name__)

#: A broker that does not respond in time is down or stalled; the next sample tries it again.
PEER_TIMEOUT_S: Final = 5.0
_PARTITIONS_PER_REQUEST: Final = 500  # reading or answering them takes one to two milliseconds
_VERSION: Final = 5  # every version of Partage supports it: brokers are upgraded one by one
# enough for that many partitions with the longest topic names
_RESPONSE_BYTES_MAX: Final = 1024 * 1024


class PeerEndOffsets:
    """Implements `partage.broker.coordination.lag_sampler.RemoteEndOffsets`.

    All brokers are asked at the same time, each over a new connection.
    """

    def __init__(
        self, log_manager: LogManager, cluster_view: ClusterView, patience_s: float = PEER_TIMEOUT_S
    ) -> None:
        self._log_manager = log_manager
        self._cluster_view = cluster_view
        self._timeout_s = patience_s

    async def fetch(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the end offsets that the brokers reported in time."""
        found: dict[TopicPartition, int] = {}
        nodes = {node.node_id: node for node in self._cluster_view.brokers()}
        by_broker = self._by_broker(partitions)
        await asyncio.gather(
            *(
                self._ask(nodes[holder], of, found)
                for holder, of in by_broker.items()
                if holder in nodes
            )
        )
        return found

    def _by_broker(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[int, Sequence[TopicPartition]]:
        holders: dict[int, list[TopicPartition]] = {}
        for name, index in partitions:
            local_topic = self._log_manager.topic(name)
            if local_topic is not None and index < local_topic.partition_count:
                holder = self._cluster_view.broker_of(local_topic.topic, index)
                holders.setdefault(holder, []).append(TopicPartition(name, index))
        return holders

    async def _ask(
        self,
        node: BrokerNode,
        partitions: Sequence[TopicPartition],
        found: dict[TopicPartition, int],
    ) -> None:
        """Request end offsets from one broker; keep those received before a failure."""
        try:
            async with asyncio.timeout(self._timeout_s):
                reader, writer = await asyncio.open_connection(node.host, node.port)
                try:
                    for begin in range(0, len(partitions), _PARTITIONS_PER_REQUEST):
                        some = partitions[begin : begin + _PARTITIONS_PER_REQUEST]
                        writer.writelines(self._request(begin, some))
                        response = await read_peer_response(
                            reader, LIST_OFFSETS, _VERSION, begin, _RESPONSE_BYTES_MAX
                        )
                        found.update(_end_offsets(response, set(some)))
                finally:
                    writer.close()
        # timeout, malformed response, invalid host name
        except (OSError, EOFError, ValueError) as error:
            log.debug("end offsets not received: broker_id=%d error=%r", node.node_id, error)

    def _request(self, correlation_id: int, partitions: Sequence[TopicPartition]) -> list[bytes]:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for name, index in partitions:
            requested = ListOffsetsPartition(partition_index=index, timestamp_ms=LATEST)
            topics.setdefault(name, []).append(requested)
        request = ListOffsetsRequest(
            topics=[ListOffsetsTopic(name=name, partitions=of) for name, of in topics.items()]
        )
        name = f"partage-broker-{self._cluster_view.node.node_id}"
        return encode_peer_request(LIST_OFFSETS, _VERSION, correlation_id, name, request)


def _end_offsets(
    response: ListOffsetsResponse, requested: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, of.partition_index): of.offset
        for topic in response.topics
        for of in topic.partitions
        if not of.error_code and of.offset >= 0 and (topic.name, of.partition_index) in requested
    }
