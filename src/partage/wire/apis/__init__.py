"""The messages of the Kafka protocol, one file per API. ``APIS`` maps API keys to APIs."""

from __future__ import annotations

from typing import Final

from partage.wire.api import AnyApi
from partage.wire.apis.add_offsets_to_txn import ADD_OFFSETS_TO_TXN
from partage.wire.apis.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from partage.wire.apis.alter_configs import ALTER_CONFIGS
from partage.wire.apis.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from partage.wire.apis.alter_replica_log_dirs import ALTER_REPLICA_LOG_DIRS
from partage.wire.apis.api_versions import API_VERSIONS
from partage.wire.apis.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from partage.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from partage.wire.apis.create_acls import CREATE_ACLS
from partage.wire.apis.create_partitions import CREATE_PARTITIONS
from partage.wire.apis.create_topics import CREATE_TOPICS
from partage.wire.apis.delete_acls import DELETE_ACLS
from partage.wire.apis.delete_groups import DELETE_GROUPS
from partage.wire.apis.delete_records import DELETE_RECORDS
from partage.wire.apis.delete_topics import DELETE_TOPICS
from partage.wire.apis.describe_acls import DESCRIBE_ACLS
from partage.wire.apis.describe_client_quotas import DESCRIBE_CLIENT_QUOTAS
from partage.wire.apis.describe_cluster import DESCRIBE_CLUSTER
from partage.wire.apis.describe_configs import DESCRIBE_CONFIGS
from partage.wire.apis.describe_groups import DESCRIBE_GROUPS
from partage.wire.apis.describe_log_dirs import DESCRIBE_LOG_DIRS
from partage.wire.apis.describe_producers import DESCRIBE_PRODUCERS
from partage.wire.apis.describe_quorum import DESCRIBE_QUORUM
from partage.wire.apis.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from partage.wire.apis.describe_transactions import DESCRIBE_TRANSACTIONS
from partage.wire.apis.describe_user_scram_credentials import DESCRIBE_USER_SCRAM_CREDENTIALS
from partage.wire.apis.elect_leaders import ELECT_LEADERS
from partage.wire.apis.end_txn import END_TXN
from partage.wire.apis.fetch import FETCH
from partage.wire.apis.find_coordinator import FIND_COORDINATOR
from partage.wire.apis.heartbeat import HEARTBEAT
from partage.wire.apis.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from partage.wire.apis.init_producer_id import INIT_PRODUCER_ID
from partage.wire.apis.join_group import JOIN_GROUP
from partage.wire.apis.leave_group import LEAVE_GROUP
from partage.wire.apis.list_config_resources import LIST_CONFIG_RESOURCES
from partage.wire.apis.list_groups import LIST_GROUPS
from partage.wire.apis.list_offsets import LIST_OFFSETS
from partage.wire.apis.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from partage.wire.apis.list_transactions import LIST_TRANSACTIONS
from partage.wire.apis.metadata import METADATA
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from partage.wire.apis.offset_delete import OFFSET_DELETE
from partage.wire.apis.offset_fetch import OFFSET_FETCH
from partage.wire.apis.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from partage.wire.apis.produce import PRODUCE
from partage.wire.apis.sasl_authenticate import SASL_AUTHENTICATE
from partage.wire.apis.sasl_handshake import SASL_HANDSHAKE
from partage.wire.apis.sync_group import SYNC_GROUP
from partage.wire.apis.txn_offset_commit import TXN_OFFSET_COMMIT
from partage.wire.apis.update_features import UPDATE_FEATURES
from partage.wire.apis.write_txn_markers import WRITE_TXN_MARKERS

__all__ = ["APIS"]

#: All supported APIs, in order of their keys.
APIS: Final[dict[int, AnyApi]] = {
    api.key: api
    for api in (
        PRODUCE,
        FETCH,
        LIST_OFFSETS,
        METADATA,
        OFFSET_COMMIT,
        OFFSET_FETCH,
        FIND_COORDINATOR,
        JOIN_GROUP,
        HEARTBEAT,
        LEAVE_GROUP,
        SYNC_GROUP,
        DESCRIBE_GROUPS,
        LIST_GROUPS,
        SASL_HANDSHAKE,
        API_VERSIONS,
        CREATE_TOPICS,
        DELETE_TOPICS,
        DELETE_RECORDS,
        INIT_PRODUCER_ID,
        OFFSET_FOR_LEADER_EPOCH,
        ADD_PARTITIONS_TO_TXN,
        ADD_OFFSETS_TO_TXN,
        END_TXN,
        WRITE_TXN_MARKERS,
        TXN_OFFSET_COMMIT,
        DESCRIBE_ACLS,
        CREATE_ACLS,
        DELETE_ACLS,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
        ALTER_REPLICA_LOG_DIRS,
        DESCRIBE_LOG_DIRS,
        SASL_AUTHENTICATE,
        CREATE_PARTITIONS,
        DELETE_GROUPS,
        ELECT_LEADERS,
        INCREMENTAL_ALTER_CONFIGS,
        ALTER_PARTITION_REASSIGNMENTS,
        LIST_PARTITION_REASSIGNMENTS,
        OFFSET_DELETE,
        DESCRIBE_CLIENT_QUOTAS,
        DESCRIBE_USER_SCRAM_CREDENTIALS,
        DESCRIBE_QUORUM,
        UPDATE_FEATURES,
        DESCRIBE_CLUSTER,
        DESCRIBE_PRODUCERS,
        DESCRIBE_TRANSACTIONS,
        LIST_TRANSACTIONS,
        CONSUMER_GROUP_HEARTBEAT,
        CONSUMER_GROUP_DESCRIBE,
        LIST_CONFIG_RESOURCES,
        DESCRIBE_TOPIC_PARTITIONS,
    )
}
