"""What a broker calls to be one of several; kazoo is imported only then."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from partage.broker.cluster.address import StateAddress
from partage.broker.coordinator import Coordinator
from partage.broker.group_events import Place
from partage.broker.hosted import Hosted
from partage.broker.neighbours import Neighbours
from partage.broker.node import Node
from partage.broker.producer_ids import ProducerIds
from partage.broker.topic_changes import TopicChanges
from partage.log.disk import Disk
from partage.model.settings import BrokerSettings
from partage.store.cluster_registry import RegistrationConflictError
from partage.store.zk_schema import ForeignDataError
from partage.store.zookeeper import StoreError

if TYPE_CHECKING:
    from partage.broker.cluster.cluster import Cluster

__all__ = [
    "SHARDS_MAX",
    "CannotJoin",
    "as_one_of_several",
    "changes_of",
    "enter_cluster",
    "join_cluster",
]


#: Of a group together: a ZooKeeper keeps all it has in memory.
_GROUP_BYTES_MAX: Final = 16 * 1024 * 1024
#: A cluster is founded in one transaction, which has to fit into one packet of ZooKeeper's.
SHARDS_MAX: Final = 1_000


class CannotJoin(Exception):
    """The broker cannot be part of the cluster; the message says why, and what to do."""


def as_one_of_several(settings: BrokerSettings) -> BrokerSettings:
    """The settings as they hold in a cluster: groups that ZooKeeper can hold."""
    groups = msgspec.structs.replace(
        settings.groups, group_bytes_max=min(settings.groups.group_bytes_max, _GROUP_BYTES_MAX)
    )
    return msgspec.structs.replace(settings, groups=groups)


async def join_cluster(
    state: StateAddress,
    disk: Disk,
    settings: BrokerSettings,
    on_fatal: Callable[[BaseException], None],
) -> Cluster:
    """Find the cluster, or found it. Raises `CannotJoin` and `DamagedFileError`."""
    if settings.offsets_partitions > SHARDS_MAX:
        raise CannotJoin(
            f"offsets.topic.num.partitions is {settings.offsets_partitions}, and the groups of "
            f"several brokers have at most {SHARDS_MAX} shards; correct --override"
        )
    try:
        from partage.broker.cluster.cluster import Cluster
        from partage.broker.cluster.kazoo_session import Unreachable
        from partage.broker.cluster.tls import BadTls
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("kazoo"):
            raise
        raise CannotJoin(
            "--state needs kazoo, which is not installed: pip install 'partage[zookeeper]'"
        ) from None

    def failed(error: BaseException) -> None:
        on_fatal(
            CannotJoin(str(error))
            if isinstance(error, RegistrationConflictError | ForeignDataError)
            else error
        )

    try:
        return await Cluster.find(state, disk, settings, failed)
    except (Unreachable, BadTls, ForeignDataError, StoreError) as error:
        raise CannotJoin(str(error)) from None


async def enter_cluster(
    cluster: Cluster, node: Node, hosted: Hosted, coordinator: Coordinator
) -> tuple[Neighbours, ProducerIds]:
    """Be up, and take a share of the groups; the cluster as clients are told of it, and producer
    ids that no other broker hands out. Raises `CannotJoin`.
    """
    from partage.broker.cluster.seen import Seen

    try:
        await cluster.enter(node, hosted, coordinator)
        first_id = await cluster.reserve_producer_ids()
    except (RegistrationConflictError, ForeignDataError, StoreError) as error:
        raise CannotJoin(str(error)) from None
    return Seen(cluster), ProducerIds.counted_from(first_id)


def changes_of(cluster: Cluster, hosted: Hosted) -> tuple[TopicChanges, Place]:
    """How topics are changed for the whole cluster, and where this broker tells of its groups."""
    from partage.broker.cluster.shared_changes import OwnPlace, SharedChanges

    changes = SharedChanges(cluster, hosted)
    return changes, OwnPlace(changes)
