"""The handlers of the APIs that only Kafka's admin clients and tools use."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from partage.broker.apis import (
    config_resources,
    log_dirs,
    quorum,
    replicas,
    security,
    topic_partitions,
    transaction_descriptions,
    transactions,
)
from partage.broker.cluster.cluster_view import ClusterView
from partage.broker.configs.dynamic_configs import DynamicConfigs
from partage.broker.net.inbound_request import Handler, InboundRequest
from partage.broker.topics.log_manager import LogManager
from partage.broker.transactions.transaction_coordinator import TransactionCoordinator
from partage.log.disk import Disk
from partage.wire.apis.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from partage.wire.apis.alter_replica_log_dirs import ALTER_REPLICA_LOG_DIRS
from partage.wire.apis.create_acls import CREATE_ACLS
from partage.wire.apis.delete_acls import DELETE_ACLS
from partage.wire.apis.describe_acls import DESCRIBE_ACLS
from partage.wire.apis.describe_client_quotas import DESCRIBE_CLIENT_QUOTAS
from partage.wire.apis.describe_log_dirs import DESCRIBE_LOG_DIRS
from partage.wire.apis.describe_producers import DESCRIBE_PRODUCERS
from partage.wire.apis.describe_quorum import DESCRIBE_QUORUM
from partage.wire.apis.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from partage.wire.apis.describe_user_scram_credentials import DESCRIBE_USER_SCRAM_CREDENTIALS
from partage.wire.apis.elect_leaders import ELECT_LEADERS
from partage.wire.apis.list_config_resources import LIST_CONFIG_RESOURCES
from partage.wire.apis.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from partage.wire.apis.list_transactions import LIST_TRANSACTIONS
from partage.wire.apis.sasl_authenticate import SASL_AUTHENTICATE
from partage.wire.apis.sasl_handshake import SASL_HANDSHAKE
from partage.wire.apis.update_features import UPDATE_FEATURES


def admin_handlers(
    log_manager: LogManager,
    cluster_view: ClusterView,
    disk: Disk,
    dynamic_configs: DynamicConfigs,
    transaction_coordinator: TransactionCoordinator,
    as_task: Callable[[Callable[[InboundRequest], Coroutine[Any, Any, None]]], Handler],
) -> dict[int, Handler]:
    """Return a handler for each of these APIs.

    Args:
        log_manager: the topics and partitions of this broker.
        cluster_view: the brokers.
        disk: the data directory.
        dynamic_configs: the altered configs of brokers and groups.
        transaction_coordinator: the transaction coordinator.
        as_task: returns a handler that runs a coroutine as a task.
    """
    return {
        SASL_HANDSHAKE.key: security.sasl_handshake,
        SASL_AUTHENTICATE.key: security.sasl_authenticate,
        DESCRIBE_ACLS.key: security.describe_acls,
        CREATE_ACLS.key: security.create_acls,
        DELETE_ACLS.key: security.delete_acls,
        ALTER_REPLICA_LOG_DIRS.key: lambda i: log_dirs.alter_replica_log_dirs(i, log_manager, disk),
        DESCRIBE_LOG_DIRS.key: as_task(lambda i: log_dirs.describe_log_dirs(i, log_manager, disk)),
        ELECT_LEADERS.key: lambda i: replicas.elect_leaders(i, log_manager, cluster_view),
        ALTER_PARTITION_REASSIGNMENTS.key: lambda i: replicas.alter_partition_reassignments(
            i, log_manager, cluster_view
        ),
        LIST_PARTITION_REASSIGNMENTS.key: replicas.list_partition_reassignments,
        DESCRIBE_CLIENT_QUOTAS.key: security.describe_client_quotas,
        DESCRIBE_USER_SCRAM_CREDENTIALS.key: security.describe_user_scram_credentials,
        DESCRIBE_QUORUM.key: lambda i: quorum.describe_quorum(
            i, cluster_view, log_manager.wall_ms()
        ),
        UPDATE_FEATURES.key: quorum.update_features,
        DESCRIBE_PRODUCERS.key: lambda i: transactions.describe_producers(i, log_manager),
        LIST_TRANSACTIONS.key: as_task(
            lambda i: transaction_descriptions.list_transactions(i, transaction_coordinator)
        ),
        LIST_CONFIG_RESOURCES.key: lambda i: config_resources.list_config_resources(
            i, log_manager, cluster_view, dynamic_configs
        ),
        DESCRIBE_TOPIC_PARTITIONS.key: lambda i: topic_partitions.describe_topic_partitions(
            i, log_manager, cluster_view
        ),
    }
