"""ElectLeaders and the reassignment of partitions.

Each partition has one replica, on the broker that it was created on. That broker is always its
leader, and no partition moves.
"""

from __future__ import annotations

from collections.abc import Sequence

from partage.broker.cluster.cluster_view import ClusterView
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.topics.log_manager import LogManager
from partage.log.catalogue.topic_names import TOPIC_NAME_MAX
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from partage.wire.apis.elect_leaders import (
    PREFERRED,
    UNCLEAN,
    ElectLeadersRequest,
    ElectLeadersResponse,
    LeaderElectionPartition,
    LeaderElectionTopic,
)
from partage.wire.apis.list_partition_reassignments import ListPartitionReassignmentsResponse


def elect_leaders(
    inbound: InboundRequest, log_manager: LogManager, cluster_view: ClusterView
) -> None:
    """Respond that no election is needed, or that the only replica is not available."""
    request: ElectLeadersRequest = inbound.message
    is_unclean = request.election_type == UNCLEAN
    if request.topic_partitions is None:
        requested = {
            topic.name: dict.fromkeys(range(topic.partition_count))
            for topic in log_manager.topics()
        }
    else:
        requested = {}
        for topic in request.topic_partitions:
            requested.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
    invalid = None
    if request.election_type not in (PREFERRED, UNCLEAN):
        invalid = Refusal(
            ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
        )
    topics = []
    for name, indexes in requested.items():
        partitions = []
        for index in indexes:
            result = invalid or _election_result(name, index, log_manager, cluster_view, is_unclean)
            # As in Kafka, an election of all leaders reports only those that it tried to change.
            is_omitted = request.topic_partitions is None and (
                result.code is ErrorCode.ELECTION_NOT_NEEDED
            )
            if not is_omitted:
                partitions.append(
                    LeaderElectionPartition(
                        partition_id=index, error_code=result.code, error_message=result.message
                    )
                )
        topics.append(LeaderElectionTopic(topic=name, partition_result=partitions))
    error = ErrorCode.NONE if invalid is None else invalid.code
    inbound.respond(ElectLeadersResponse(error_code=error, replica_election_results=topics))


def _election_result(
    name: str, index: int, log_manager: LogManager, cluster_view: ClusterView, is_unclean: bool
) -> Refusal:
    topic = log_manager.topic(name)
    if topic is None:
        return Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name[:TOPIC_NAME_MAX]}"
        )
    if not log_manager.has_partition(name, index):
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    holder = cluster_view.broker_of(topic.topic, index)
    if cluster_view.is_up(holder):
        return Refusal(
            ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
        )
    error = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    if is_unclean:
        error = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return Refusal(error, f"broker {holder}, which has the only replica, is down")


def alter_partition_reassignments(
    inbound: InboundRequest, log_manager: LogManager, cluster_view: ClusterView
) -> None:
    """Accept only the current broker of each partition as its replica."""
    request: AlterPartitionReassignmentsRequest = inbound.message
    live = {node.node_id for node in cluster_view.brokers()}
    responses = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            refusal = _check_reassignment(
                topic.name,
                partition.partition_index,
                partition.replicas,
                log_manager,
                cluster_view,
                live,
            )
            partitions.append(
                ReassignablePartitionResponse(
                    partition_index=partition.partition_index,
                    error_code=refusal.code if refusal else ErrorCode.NONE,
                    error_message=refusal.message if refusal else None,
                )
            )
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
    inbound.respond(
        AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_code=ErrorCode.NONE,
            error_message=None,
            responses=responses,
        )
    )


def _check_reassignment(
    name: str,
    index: int,
    replicas: Sequence[int] | None,
    log_manager: LogManager,
    cluster_view: ClusterView,
    live: set[int],
) -> Refusal | None:
    topic = log_manager.topic(name)
    if topic is None:
        return Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Unable to find a topic named {name[:TOPIC_NAME_MAX]}.",
        )
    if not log_manager.has_partition(name, index):
        return Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}."
        )
    if replicas is None:
        return Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not moving")
    holder = cluster_view.broker_of(topic.topic, index)
    if list(replicas) == [holder]:
        return None
    why = f"the partition stays on broker {holder}: Partage does not move or replicate partitions"
    unknown = [broker for broker in replicas if broker not in live]
    if not replicas:
        why = "The manual partition assignment includes an empty replica list."
    elif unknown:
        why = (
            f"The manual partition assignment includes broker {unknown[0]}, but no such broker is "
            "registered."
        )
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


def list_partition_reassignments(inbound: InboundRequest) -> None:
    """Respond with an empty list: no partition moves."""
    inbound.respond(
        ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=[])
    )
