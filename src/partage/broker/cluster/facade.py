"""Functions that a broker calls to join a cluster. kazoo is imported only when they are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from partage.broker.clock import Clock
from partage.broker.cluster.broker_node import BrokerNode
from partage.broker.cluster.cluster_session import (
    BeginSession,
    ZooKeeperTlsError,
    ZooKeeperUnreachableError,
)
from partage.broker.cluster.cluster_view import ClusterView
from partage.broker.cluster.state_address import StateAddress
from partage.broker.configs.config_store import ConfigStore
from partage.broker.coordination.group_coordinator import GroupCoordinator
from partage.broker.coordination.group_events_writer import EventsPartition
from partage.broker.ids import IdSource
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.producer_ids import ProducerIdManager
from partage.broker.topics.topic_admin import TopicAdmin
from partage.broker.transactions.transaction_coordinator import TransactionCoordinator
from partage.log.disk import Disk
from partage.model.settings import BrokerSettings
from partage.store.cluster_registry import RegistrationConflictError
from partage.store.zk_schema import ForeignDataError
from partage.store.zookeeper import StoreError

if TYPE_CHECKING:
    from partage.broker.cluster.cluster_membership import ClusterMembership

__all__ = [
    "SHARDS_MAX",
    "ClusterJoinError",
    "connect_to_cluster",
    "create_cluster_view",
    "create_config_store",
    "create_topic_admin",
    "start_in_cluster",
    "with_cluster_limits",
]


#: Limit for one group: ZooKeeper keeps all its data in memory.
_GROUP_BYTES_MAX: Final = 16 * 1024 * 1024
#: A cluster is created in one transaction, which must fit into one ZooKeeper packet.
SHARDS_MAX: Final = 1_000


class ClusterJoinError(Exception):
    """Raised if the broker cannot join the cluster; the message says why, and what to do."""


def with_cluster_limits(settings: BrokerSettings) -> BrokerSettings:
    """Return the settings with a cluster's limits: groups must fit into ZooKeeper."""
    groups = msgspec.structs.replace(
        settings.groups, group_bytes_max=min(settings.groups.group_bytes_max, _GROUP_BYTES_MAX)
    )
    return msgspec.structs.replace(settings, groups=groups)


async def connect_to_cluster(
    state: StateAddress,
    disk: Disk,
    settings: BrokerSettings,
    clock: Clock,
    ids: IdSource,
    on_fatal: Callable[[BaseException], None],
    begin_session: BeginSession | None = None,
) -> ClusterMembership:
    """Find or create the cluster.

    Args:
        state: the address of the cluster's state.
        disk: the data directory.
        settings: the broker settings.
        clock: the clocks of the broker.
        ids: draws the ids of the cluster, the directory and registrations.
        on_fatal: called if the broker cannot continue.
        begin_session: begins sessions; by default with kazoo.

    Raises:
        ClusterJoinError: the broker cannot join the cluster.
        DamagedFileError: the data directory does not say to which broker it belongs.
    """
    group_shards, transaction_shards = settings.offsets_partitions, settings.transactions.partitions
    if group_shards + transaction_shards > SHARDS_MAX:
        raise ClusterJoinError(
            f"offsets.topic.num.partitions is {group_shards} and "
            f"transaction.state.log.num.partitions is {transaction_shards}, but a cluster has at "
            f"most {SHARDS_MAX} shards of both kinds; correct --override"
        )
    from partage.broker.cluster.cluster_membership import ClusterMembership

    def failed(error: BaseException) -> None:
        on_fatal(
            ClusterJoinError(str(error))
            if isinstance(error, RegistrationConflictError | ForeignDataError)
            else error
        )

    try:
        return await ClusterMembership.connect(
            state, disk, settings, clock, ids, begin_session or _kazoo_sessions(), failed
        )
    except (ZooKeeperUnreachableError, ZooKeeperTlsError, ForeignDataError, StoreError) as error:
        raise ClusterJoinError(str(error)) from None


def _kazoo_sessions() -> BeginSession:
    try:
        from partage.broker.cluster.kazoo_session import begin_session
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("kazoo"):
            raise
        raise ClusterJoinError(
            "--state needs kazoo, which is not installed: pip install 'partage[zookeeper]'"
        ) from None
    return begin_session


def create_cluster_view(cluster: ClusterMembership) -> ClusterView:
    """Return the cluster as clients see it, from the start of the membership on."""
    from partage.broker.cluster.registry_view import RegistryView

    return RegistryView(cluster)


async def start_in_cluster(
    cluster: ClusterMembership,
    node: BrokerNode,
    log_manager: LogManager,
    coordinator: GroupCoordinator,
    transactions: TransactionCoordinator,
    producer_ids: ProducerIdManager,
) -> None:
    """Register the broker, take over a share of the groups and transactional ids, and reserve
    producer ids that no other broker uses.

    Raises:
        ClusterJoinError: the broker cannot join the cluster.
    """
    try:
        await cluster.start(node, log_manager, coordinator, transactions.hosts)
        producer_ids.use_block(await cluster.reserve_producer_ids())
    except (RegistrationConflictError, ForeignDataError, StoreError) as error:
        raise ClusterJoinError(str(error)) from None


def create_config_store(cluster: ClusterMembership) -> ConfigStore:
    """Return the store of the broker and group configs of the whole cluster."""
    from partage.broker.cluster.cluster_config_store import ClusterConfigStore

    return ClusterConfigStore(cluster)


def create_topic_admin(
    cluster: ClusterMembership, log_manager: LogManager
) -> tuple[TopicAdmin, EventsPartition]:
    """Return the topic admin for the whole cluster, and the partition for this broker's group
    events.
    """
    from partage.broker.cluster.cluster_topic_admin import BrokerEventsPartition, ClusterTopicAdmin

    changes = ClusterTopicAdmin(cluster, log_manager)
    return changes, BrokerEventsPartition(changes)
