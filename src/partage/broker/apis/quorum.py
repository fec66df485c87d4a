"""DescribeQuorum and UpdateFeatures: what Kafka's metadata quorum would answer.

A single broker is its own quorum. In a cluster ZooKeeper is the quorum; the controller is reported
as the only voter, and the other brokers, which follow its changes, as observers.
"""

from __future__ import annotations

from typing import Final

from partage.broker.cluster.cluster_view import ClusterView
from partage.broker.net.inbound_request import InboundRequest
from partage.model.errors import ErrorCode
from partage.wire.apis.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    QuorumPartition,
    QuorumReplica,
    QuorumTopic,
)
from partage.wire.apis.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

_METADATA_TOPIC: Final = "__cluster_metadata"
_METADATA_PARTITION: Final = (_METADATA_TOPIC, 0)
_LISTENER: Final = "PLAINTEXT"
#: Partage has no metadata log, so its end offset is the same on all brokers.
_END_OFFSET: Final = 0
_SHOWN_MAX: Final = 249  # characters of a client's text that an error message repeats


def describe_quorum(inbound: InboundRequest, cluster_view: ClusterView, wall_ms: int) -> None:
    """Respond with the controller as leader.

    Args:
        inbound: the request.
        cluster_view: the live brokers.
        wall_ms: the time at which all brokers are up to date.
    """
    request: DescribeQuorumRequest = inbound.message
    requested = [
        (topic.topic_name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    if requested != [_METADATA_PARTITION]:
        inbound.respond(_unknown_partitions(request))
        return
    leader = cluster_view.controller_id()
    replicas = {
        node.node_id: QuorumReplica(
            replica_id=node.node_id,
            log_end_offset=_END_OFFSET,
            last_fetch_timestamp=wall_ms,
            last_caught_up_timestamp=wall_ms,
        )
        for node in cluster_view.brokers()
    }
    partition = QuorumPartition(
        partition_index=0,
        error_code=ErrorCode.NONE,
        error_message="",
        leader_id=leader,
        leader_epoch=0,
        high_watermark=_END_OFFSET,
        current_voters=[replica for node_id, replica in replicas.items() if node_id == leader],
        observers=[replica for node_id, replica in replicas.items() if node_id != leader],
    )
    inbound.respond(
        DescribeQuorumResponse(
            error_code=ErrorCode.NONE,
            error_message="",
            topics=[QuorumTopic(topic_name=_METADATA_TOPIC, partitions=[partition])],
            nodes=[
                QuorumNode(
                    node_id=node.node_id,
                    listeners=[QuorumListener(name=_LISTENER, host=node.host, port=node.port)],
                )
                for node in cluster_view.brokers()
            ],
        )
    )


def _unknown_partitions(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        error_message="",
        topics=[
            QuorumTopic(
                topic_name=topic.topic_name,
                partitions=[
                    QuorumPartition(
                        partition_index=partition.partition_index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        error_message="This server does not host this topic-partition.",
                        leader_id=0,
                        leader_epoch=0,
                        high_watermark=0,
                        current_voters=[],
                        observers=[],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def update_features(inbound: InboundRequest) -> None:
    """Refuse every update: this broker has no feature with versions."""
    request: UpdateFeaturesRequest = inbound.message
    error, message = ErrorCode.NONE, None
    if request.feature_updates:
        first = request.feature_updates[0]
        error = ErrorCode.INVALID_UPDATE_VERSION
        message = (
            "The update failed for all features since the following feature had an error: Invalid "
            f"update version {first.max_version_level} for feature {first.feature[:_SHOWN_MAX]}. "
            "Partage has no features with versions."
        )
    inbound.respond(UpdateFeaturesResponse(error_code=error, error_message=message))
